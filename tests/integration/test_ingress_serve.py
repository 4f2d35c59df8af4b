"""The Ingress on a real Ray Serve, before Verifiers that have no model: kill, cancel, refuse."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

import httpx
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Serve warns about itself while it is imported
    from ray import serve

from policy_service.config import PolicyConfig
from replicas.config import IngressConfig, RoutingConfig
from replicas.ingress.deployment import ingress_deployment
from replicas.router import router_config
from tests.integration.scripted_verifier import Quiet, ScriptedVerifier
from tests.unit.models.small_tokenizers import byte_level

pytestmark = pytest.mark.ray

DEADLINE_S = 60.0
NUM_TOKENS = 60


@pytest.fixture(scope="module")
def url(serve_port: int, tmp_path_factory: pytest.TempPathFactory) -> str:
    model_dir = tmp_path_factory.mktemp("model")
    byte_level().save_pretrained(model_dir)
    config = {"model_type": "llama", "max_position_embeddings": 512, "vocab_size": 340}
    (model_dir / "config.json").write_text(json.dumps(config))
    deploy(str(model_dir))
    return f"http://127.0.0.1:{serve_port}"


def deploy(model_dir: str) -> None:
    make: Any = serve.deployment
    few = {"num_cpus": 0.1}
    verifier = make(
        ScriptedVerifier,
        num_replicas=2,
        ray_actor_options=few,
        health_check_period_s=1,
        request_router_config=router_config(RoutingConfig(), page_tokens=16),
    )
    policy = make(Quiet, ray_actor_options=few)
    ingress: Any = ingress_deployment(IngressConfig())
    app = ingress.bind(
        IngressConfig(),
        "tiny",
        model_dir,
        PolicyConfig(),
        ("prompt_lookup",),
        verifier.bind(),
        policy.bind(),
        {},
    )
    serve.run(app, name="ingress", route_prefix="/")


def body(seed: int, **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "x", "seed": seed, "max_tokens": NUM_TOKENS, **fields}


def want(seed: int) -> str:
    ids = [5 + (seed + n) % 200 for n in range(NUM_TOKENS)]
    text = byte_level().decode(ids, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


def verifiers(url: str) -> list[dict[str, Any]]:
    entries = httpx.get(f"{url}/status", timeout=10).json()["verifiers"]
    return [entry["report"] for entry in entries if not entry["is_away"]]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)


async def stream(url: str, seed: int, on_text: Callable[[int], None]) -> tuple[str, int]:
    """Return a streamed text, and how many attempts it took."""
    text, attempts, count = "", 0, 0
    async with (
        httpx.AsyncClient(timeout=DEADLINE_S) as client,
        client.stream("POST", f"{url}/v1/completions", json=body(seed, stream=True)) as response,
    ):
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                assert "error" not in event, event
                text += event["choices"][0]["text"]
                attempts = event.get("banditserve", {}).get("attempts", attempts)
                count += 1
                on_text(count)
    return text, attempts


def test_health_status_and_a_reply(url: str) -> None:
    assert httpx.get(f"{url}/health", timeout=10).json() == {"status": "ok"}
    status = httpx.get(f"{url}/status", timeout=10).json()
    assert len(status["verifiers"]) == 2
    assert status["policy"]["report"] == {"version": 1}
    response = httpx.post(
        f"{url}/v1/completions", json=body(3), headers={"X-Request-Id": "mine"}, timeout=30
    )
    assert response.json()["choices"][0]["text"] == want(3)
    assert response.headers.get_list("x-request-id") == ["mine"]


def test_tokens_come_over_the_socket(url: str) -> None:
    counts: list[int] = []
    text, _ = asyncio.run(stream(url, 4, counts.append))
    assert text == want(4)
    assert len(counts) > NUM_TOKENS // 2
    ingress = httpx.get(f"{url}/status", timeout=10).json()["ingress"]
    assert ingress["token_stream"]["chunks"] >= NUM_TOKENS


@pytest.mark.parametrize(("seed", "status"), [(400, 400), (429, 429)])
@pytest.mark.parametrize("streamed", [False, True])
def test_what_a_verifier_refuses(url: str, seed: int, status: int, streamed: bool) -> None:
    response = httpx.post(f"{url}/v1/completions", json=body(seed, stream=streamed), timeout=30)
    assert response.status_code == status
    assert "Traceback" not in response.text


def leave_after(url: str, fields: dict[str, Any], seconds: float) -> None:
    """Ask, and close the connection while the answer is under way, with a ``ReadTimeout``."""
    start = time.monotonic()
    with httpx.stream("POST", f"{url}/v1/completions", json=fields, timeout=seconds) as response:
        for _ in response.iter_lines():
            if time.monotonic() - start > seconds:
                raise httpx.ReadTimeout("went away")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_goes_away_frees_the_verifier(url: str, streamed: bool) -> None:
    def num_cancelled() -> int:
        return sum(report["num_cancelled"] for report in verifiers(url))

    before = num_cancelled()
    with pytest.raises(httpx.ReadTimeout):
        leave_after(url, body(5, stream=streamed, max_tokens=400), 0.5)
    until(lambda: num_cancelled() == before + 1)
    assert all(report["num_running"] == 0 for report in verifiers(url))


def test_killed_verifiers_are_not_noticed(url: str) -> None:
    """Eight streams; one of two Verifiers is killed in the middle; all texts are as they should."""
    victims = verifiers(url)
    killed: list[int] = []

    def kill(count: int) -> None:
        if count == 10 and not killed:
            killed.append(victims[0]["pid"])
            os.kill(killed[0], signal.SIGKILL)

    async def all_streams() -> list[tuple[str, int]]:
        return await asyncio.gather(*(stream(url, seed, kill) for seed in range(10, 18)))

    replies = asyncio.run(all_streams())
    assert [text for text, _ in replies] == [want(seed) for seed in range(10, 18)]
    assert {attempts for _, attempts in replies} == {1, 2}
    until(lambda: len(verifiers(url)) == 2)


def test_all_verifiers_killed_at_once(url: str) -> None:
    victims = verifiers(url)
    assert len(victims) == 2
    killed: list[int] = []

    def kill(count: int) -> None:
        if count == 10 and not killed:
            for victim in victims:
                killed.append(victim["pid"])
                os.kill(victim["pid"], signal.SIGKILL)

    text, attempts = asyncio.run(stream(url, 7, kill))
    assert text == want(7)
    assert attempts >= 2
    entries = httpx.get(f"{url}/status", timeout=10).json()["verifiers"]
    assert any(entry["is_away"] and entry["away_since"] for entry in entries)
