"""Counts for tests of stores, and an empty real store to put them into."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis

from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.redis_pool.store import RedisStore
from policy_service.store import CounterStore
from tests.integration.redis_fixture import RedisProcess

KEY = CellKey("n=a|r=chat|s=|c=0|l=0|t=0", "prompt_lookup:4", "v/1 é")
OTHER = CellKey("global", "none")
COUNTS = ArmCounts(1, 2, 3, 4, 5, 6, 7, 8)
EPOCH = int(time.time() // 600) * 600


def batch(
    sequence: int, epoch: int = EPOCH, incarnation: str = "i", model: str = "m", **cells: Any
) -> OutcomeBatch:
    return OutcomeBatch(
        "r", incarnation, sequence, epoch, model, cells.get("deltas", {KEY: COUNTS})
    )


async def epochs(store: CounterStore, model: str = "m") -> Any:
    return (await store.read(model, EPOCH)).epochs


async def with_redis(process: RedisProcess, test: Callable[[Any], Any], **options: Any) -> None:
    """Run a test with an empty store."""
    async with Redis.from_url(process.url) as client:
        await client.flushall()
    store = RedisStore(process.config, **options)
    try:
        await test(store)
    finally:
        await store.close()
