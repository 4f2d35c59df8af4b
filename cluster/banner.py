"""What is printed when the system can answer: where it is, and two ways to try it by pasting."""

from __future__ import annotations

import importlib.util
import shlex
import sys

from cluster.config import SystemConfig

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}

_PYTHON = """\
from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key="{key}")
stream = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "Write a haiku about the sea."}}],
    stream=True,
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
print()"""


def base_url(config: SystemConfig) -> str:
    """Return where a client on this machine reaches the system, without ``/v1``."""
    host = _EVERYWHERE.get(config.host, config.host)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{config.port}"


def ready_text(config: SystemConfig, model_name: str, redis_words: str, ray_words: str) -> str:
    """Return the text for a system that is ready."""
    url = base_url(config)
    key = config.ingress.api_keys[0] if config.ingress.api_keys else None
    drafters = ", ".join(config.drafters) or "none"
    return "\n".join(
        (
            "",
            f"Ready: {url}/v1",
            f"  model {model_name}, drafters {drafters}, learner {config.policy.learner}",
            f"  Redis: {redis_words}; Ray: {ray_words}",
            "",
            "Try it, from another terminal:",
            "",
            _curl(url, model_name, key),
            "",
            "or with the openai package:",
            "",
            _snippet(url, model_name, key),
            "",
            f"How it is: banditserve status --url {url}    Stop: Ctrl-C",
        )
    )


def _curl(url: str, model_name: str, key: str | None) -> str:
    body = (
        f'{{"model": "{model_name}", "messages": [{{"role": "user", "content": "What is 2+2?"}}]}}'
    )
    header = f" -H {shlex.quote(f'Authorization: Bearer {key}')}" if key else ""
    return (
        f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{header} "
        f"-d {shlex.quote(body)}"
    )


def _snippet(url: str, model_name: str, key: str | None) -> str:
    has_openai = importlib.util.find_spec("openai") is not None
    python = shlex.quote(sys.executable) if has_openai else "python3"
    code = _PYTHON.format(url=url, model=model_name, key=key or "none")
    return f"{python} - <<'EOF'\n{code}\nEOF"
