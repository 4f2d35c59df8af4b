"""A client for tests: the openai package, many requests at once, failures never retried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI

from cluster.workloads import Prompt

MODEL = "smollm2"


@dataclass
class Reply:
    """One chat reply.

    Attributes:
        text: What it says.
        finish_reason: Why it ended.
        usage: Token counts.
        extra: The ``banditserve`` object beside the choices.
    """

    text: str = ""
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


def openai_client(base_url: str) -> OpenAI:
    """Return a client that does not retry: a failure must be seen."""
    return OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=0, timeout=300.0)


def chat(client: OpenAI, prompt: str, **options: Any) -> Reply:
    """Ask for a whole reply."""
    completion = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": prompt}], **options
    )
    choice = completion.choices[0]
    extra = getattr(completion, "banditserve", None) or {}
    usage = completion.usage.model_dump() if completion.usage else {}
    return Reply(choice.message.content or "", choice.finish_reason, usage, extra)


def stream_chat(client: OpenAI, prompt: str, **options: Any) -> Reply:
    """Ask for a reply chunk by chunk and put it together."""
    reply = Reply()
    for chunk in client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": prompt}],
        stream=True,
        stream_options={"include_usage": True},
        **options,
    ):
        for choice in chunk.choices:
            reply.text += choice.delta.content or ""
            reply.finish_reason = choice.finish_reason or reply.finish_reason
        if chunk.usage:
            reply.usage = chunk.usage.model_dump()
        reply.extra = getattr(chunk, "banditserve", None) or reply.extra
    return reply


def chat_all(
    client: OpenAI,
    prompts: Sequence[Prompt],
    *,
    users: int = 8,
    speculation: Mapping[str, Any] | None = None,
    stream: bool = False,
    **options: Any,
) -> list[Reply]:
    """Ask for all replies, ``users`` at a time."""
    body = {"speculation": dict(speculation or {})}
    ask = stream_chat if stream else chat

    def one(prompt: Prompt) -> Reply:
        return ask(client, prompt.turns[0], extra_body=body, **options)

    with ThreadPoolExecutor(users) as pool:
        return list(pool.map(one, prompts))
