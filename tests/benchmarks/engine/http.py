"""Streaming over HTTP at 16 users against the engine's own rate, in turn."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from models.paged_model import PagedModel
from models.store import ModelFolder
from replicas.engine.step_time import warm_up
from tests.benchmarks.engine.decode import engine_core, run_engine, varied
from tests.system import start_system

USERS = 16


async def _stream(
    client: httpx.AsyncClient, model: str, prompt: Sequence[int], max_tokens: int
) -> int:
    """Read one stream to its end and return how many tokens it says it had."""
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "speculation": {"mode": "off"},
    }
    last = b""
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for part in answer.aiter_raw():
            last = last[-4096:] + part
    events = [line[6:] for line in last.split(b"\n") if line.startswith(b"data: {")]
    return int(json.loads(events[-1])["usage"]["completion_tokens"])


async def _tokens_per_second(
    base_url: str, model: str, prompts: Sequence[Sequence[int]], max_tokens: int
) -> float:
    started = time.perf_counter()
    async with httpx.AsyncClient(base_url=base_url, timeout=600.0) as client:
        counts = await asyncio.gather(*(_stream(client, model, one, max_tokens) for one in prompts))
    return sum(counts) / (time.perf_counter() - started)


def http_figures(
    model: PagedModel,
    folder: ModelFolder,
    prompts: Sequence[Sequence[int]],
    rounds: int,
    max_tokens: int,
) -> dict[str, float]:
    """Alternate the engine in this process and a system over HTTP; return medians."""
    core = engine_core(model, warm_up(model))
    engine_rates, http_rates = [], []
    with tempfile.TemporaryDirectory() as state:
        system = start_system(Path(state), {"model": folder.name})
        try:
            for number in range(rounds):
                asked = [
                    varied(prompts[i % len(prompts)], 2000 + 100 * number + i) for i in range(USERS)
                ]
                engine_rates.append(run_engine(core, asked, max_tokens).tokens_per_s)
                http_rates.append(
                    asyncio.run(_tokens_per_second(system.base_url, folder.name, asked, max_tokens))
                )
        finally:
            system.stop()
    pairs = zip(http_rates, engine_rates, strict=True)
    return {
        "http_tokens_per_s_16": statistics.median(http_rates),
        "engine_tokens_per_s_16": statistics.median(engine_rates),
        "http_share_16": statistics.median(http / engine for http, engine in pairs),
    }
