"""Verifiers follow their work on a real Ray: one, two and one again, and no request notices."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Serve warns about itself while it is imported
    from ray import serve

from cluster.config import SystemConfig
from cluster.serve_app import build_app
from models.store import ModelFolder
from policy_service.redis_pool.config import RedisConfig
from replicas.config import EngineConfig, VerifierAutoscaling, VerifierConfig
from tests.integration.redis_fixture import RedisProcess
from tests.unit.models.small_tokenizers import byte_level
from tests.unit.models.tiny_models import SHAPE

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.slow]

SCALED_S = 120.0
USERS = 6
TOKENS = 200


@pytest.fixture
def url(serve_port: int, tmp_path: Path) -> Iterator[str]:
    redis = RedisProcess(tmp_path)
    redis.start()
    autoscaling = VerifierAutoscaling(
        max_replicas=2,
        reply_target_s=0.1,
        look_back_s=10.5,
        upscale_delay_s=0,
        downscale_delay_s=2,
    )
    engine = EngineConfig(num_threads=1, cache_tokens=8192)
    config = SystemConfig(
        drafters={},
        verifier=VerifierConfig(num_cpus=0.5, autoscaling=autoscaling, engine=engine),
    )
    model = ModelFolder(save_small_model(tmp_path / "model"), "small", "a test")
    serve.run(build_app(config, RedisConfig(url=redis.url), model), name="scaled")
    yield f"http://127.0.0.1:{serve_port}"
    serve.delete("scaled")
    redis.stop()


def save_small_model(folder: Path) -> Path:
    torch.manual_seed(0)
    shape = {**SHAPE, "vocab_size": 340, "max_position_embeddings": 512}
    model = LlamaForCausalLM(LlamaConfig(**shape))
    model.generation_config = GenerationConfig(eos_token_id=2)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    model.save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return folder


class Load:
    """Users that ask again and again, and what became of it.

    Attributes:
        num_tokens: How long a reply they ask for.
        num_answered: Replies.
    """

    def __init__(self, url: str) -> None:
        self.num_tokens = TOKENS
        self.num_answered = 0
        self._url = url

    async def run(self, client: httpx.AsyncClient, user: int) -> None:
        number = 0
        while True:
            number += 1
            body = {
                "model": "small",
                "prompt": f"user {user}",
                "seed": number,
                "max_tokens": self.num_tokens,
                "ignore_eos": True,
            }
            answer = await client.post(f"{self._url}/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            assert answer.json()["usage"]["completion_tokens"] == body["max_tokens"]
            self.num_answered += 1
            if self.num_tokens == 1:
                await asyncio.sleep(0.2)


async def verifiers(client: httpx.AsyncClient, url: str) -> list[dict[str, Any]]:
    entries = (await client.get(f"{url}/status")).json()["verifiers"]
    return [entry["report"] for entry in entries if not entry["is_away"]]


async def until(
    client: httpx.AsyncClient, url: str, number: int, users: list[asyncio.Task[None]]
) -> list[dict[str, Any]]:
    """Wait until there are so many Verifiers; a user's failure ends the wait."""
    deadline = time.monotonic() + SCALED_S
    while True:
        found = await verifiers(client, url)
        if len(found) == number:
            return found
        assert time.monotonic() < deadline, f"{len(found)} Verifiers, expected {number}"
        await asyncio.wait(users, timeout=0.2, return_when=asyncio.FIRST_EXCEPTION)
        for user in users:
            if user.done():
                user.result()


async def scenario(url: str) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        assert len(await verifiers(client, url)) == 1
        load = Load(url)
        users = [asyncio.create_task(load.run(client, user)) for user in range(USERS)]
        first, second = sorted(
            await until(client, url, 2, users), key=lambda report: float(report["started_at"])
        )
        # who comes later has measured its steps and has the pooled counts before it is asked
        assert first["emitted_tokens"] > 0
        assert second["step_ms_by_rows"]
        assert second["policy"]["snapshot_version"] > 0
        load.num_tokens = 1
        await until(client, url, 1, users)
        for user in users:
            assert not user.done()
            user.cancel()
        assert load.num_answered > USERS


def test_verifiers_come_and_go_with_the_work_and_no_request_fails(url: str) -> None:
    asyncio.run(scenario(url))
