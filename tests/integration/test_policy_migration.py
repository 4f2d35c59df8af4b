"""An older schema in a real Redis is taken over: once, whoever comes first, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from redis.asyncio import Redis

from policy_service.api import ArmCounts, CellKey
from policy_service.errors import StoreSchemaError
from policy_service.redis_pool.schema import Keys
from policy_service.redis_pool.store import RedisStore
from policy_service.store import Applied
from tests.integration.redis_fixture import RedisProcess
from tests.integration.stored_counts import COUNTS, EPOCH, KEY, batch, epochs, with_redis

pytestmark = pytest.mark.redis

OLD = {"a|b/none//pulls": "3", "a|b/none//reward_tokens": "4", "g/x:4/v%2F1/reward_micros": "5"}
"""Two cells as schema 1 kept them."""
NEW = {
    CellKey("a|b", "none"): ArmCounts(pulls=3, reward_tokens=4),
    CellKey("g", "x:4", "v/1"): ArmCounts(reward_micros=5),
}


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path_factory.mktemp("redis"))
    process.start()
    yield process
    process.stop()


async def fill_with_schema_1(client: Any, **fields: str) -> Keys:
    keys = Keys("banditserve", "m")
    await client.set(keys.schema, "1")
    for epoch in (EPOCH, EPOCH - 600):
        await client.hset(keys.old_counts(str(epoch)), mapping={**OLD, **fields})
        await client.expire(keys.old_counts(str(epoch)), 5000)
        await client.hset(keys.old_epochs, str(epoch), "7@1.2")
    await client.set(keys.seen("r", "i"), "5", ex=9000)
    return keys


@pytest.mark.parametrize("first", ["read", "apply", "reset"])
def test_an_older_schema_is_taken_over_once(redis: RedisProcess, first: str) -> None:
    async def test(store: RedisStore) -> None:
        async with Redis.from_url(redis.url, decode_responses=True) as client:
            keys = await fill_with_schema_1(client)
            others = [RedisStore(redis.config) for _ in range(3)]
            if first == "reset":
                assert await store.reset("m", 0) == 1
                assert await epochs(store) == {}
            else:
                calls = [getattr(s, first) for s in (store, *others)]
                args = ("m", EPOCH) if first == "read" else (batch(5),)
                results = await asyncio.gather(*(call(*args) for call in calls))
                if first == "apply":
                    assert results == [Applied(5, "duplicate")] * 4, "watermarks go on"
                assert await epochs(store) == {EPOCH: NEW, EPOCH - 600: NEW}
                assert 0 < await client.ttl(keys.counts(0, EPOCH)) <= 5000
            assert await client.get(keys.schema) == "2"
            assert await client.exists(keys.old_epochs, keys.old_counts(str(EPOCH))) == 0
            for other in others:
                await other.close()

    asyncio.run(with_redis(redis, test))


def test_taking_over_is_carried_on_with_where_it_ended(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        async with Redis.from_url(redis.url, decode_responses=True) as client:
            keys = await fill_with_schema_1(client)
            await client.set(keys.schema, "2")
            await store.apply(batch(6))
            pool = await epochs(store)
            assert pool == {EPOCH: {**NEW, KEY: COUNTS}, EPOCH - 600: NEW}

    asyncio.run(with_redis(redis, test))


@pytest.mark.parametrize("field", ["a/b/pulls", "a/b/c/pulls"])
def test_a_corrupt_older_schema_is_refused_and_kept(redis: RedisProcess, field: str) -> None:
    async def test(store: RedisStore) -> None:
        async with Redis.from_url(redis.url, decode_responses=True) as client:
            keys = await fill_with_schema_1(client, **{field: "x"})
            before = await client.hgetall(keys.old_counts(str(EPOCH)))
            with pytest.raises(StoreSchemaError, match="not an integer"):
                await store.read("m", EPOCH)
            assert await client.hgetall(keys.old_counts(str(EPOCH))) == before
            assert await client.exists(keys.counts(0, EPOCH)) == 0

    asyncio.run(with_redis(redis, test))
