"""What only a store in Redis can suffer: other writers, other data, a server that goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from policy_service.api import ArmCounts, CellKey
from policy_service.errors import StoreSchemaError, StoreUnavailableError
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.schema import Keys, field_of
from policy_service.redis_pool.store import RedisStore
from policy_service.store import Applied
from tests.integration.redis_fixture import RedisProcess
from tests.integration.stored_counts import EPOCH, KEY, batch, epochs, with_redis

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path_factory.mktemp("redis"))
    process.start()
    yield process
    process.stop()


def test_only_what_others_wrote_is_fetched(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        other = RedisStore(redis.config)
        async with Redis.from_url(redis.url, decode_responses=True) as client:
            await asyncio.gather(*(store.apply(batch(1, incarnation=str(n))) for n in range(50)))
            await client.config_resetstat()
            assert (await epochs(store))[EPOCH][KEY].pulls == 50
            assert "hgetall:calls=1," in str(await commands(client)), "the index of epochs only"
            await other.apply(batch(1, incarnation="other"))
            assert (await epochs(store))[EPOCH][KEY].pulls == 51
            assert await epochs(other) == await epochs(store)
        await other.close()

    async def commands(client: Any) -> str:
        return (
            str(await client.execute_command("INFO", "commandstats"))
            .replace("'", "")
            .replace("cmdstat_hgetall: {calls: ", "hgetall:calls=")
        )

    asyncio.run(with_redis(redis, test))


def test_large_batches_and_large_counters(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        keys = [CellKey(f"r=x|c={n}", "a:4", "v") for n in range(1203)]
        for sequence in (1, 2):
            deltas = {key: ArmCounts(pulls=2**51, step_us=sequence) for key in keys}
            assert (await store.apply(batch(sequence, deltas=deltas))).status == "applied"
        fresh = RedisStore(redis.config)
        expected = dict.fromkeys(keys, ArmCounts(pulls=2**52, step_us=3))
        assert await epochs(fresh) == await epochs(store) == {EPOCH: expected}
        with pytest.raises(StoreSchemaError, match="not an integer"):
            await store.apply(batch(3, deltas={keys[-1]: ArmCounts(pulls=2**53)}))
        assert await epochs(fresh) == {EPOCH: expected}, "never inexact"
        await fresh.close()

    asyncio.run(with_redis(redis, test))


@pytest.mark.parametrize(
    ("held", "sum_"),
    [
        ("1 2 3 4 5 6 7 8 9", "2 4 6 8 10 12 14 16 9"),
        ("1 2", "2 4 3 4 5 6 7 8"),
        ("-1 0 0 0 0 0 0 0", "0 2 3 4 5 6 7 8"),
    ],
)
def test_rows_of_other_versions_are_added_to(redis: RedisProcess, held: str, sum_: str) -> None:
    async def test(store: RedisStore) -> None:
        name = Keys("banditserve", "m").counts(0, EPOCH)
        async with Redis.from_url(redis.url, decode_responses=True) as client:
            await client.hset(name, field_of(KEY), held)
            assert (await store.apply(batch(1))).status == "applied"
            assert await client.hget(name, field_of(KEY)) == sum_

    asyncio.run(with_redis(redis, test))


def test_more_callers_than_connections(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        calls = (store.apply(batch(1, incarnation=str(n))) for n in range(300))
        assert {result.status for result in await asyncio.gather(*calls)} == {"applied"}

    asyncio.run(with_redis(redis, test, timeout_s=5.0))


def test_watermark_outlives_the_counters_it_guards(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        keys = Keys("p", "m")
        async with Redis.from_url(redis.url, decode_responses=True) as client:
            for sequence, epoch in enumerate((EPOCH, EPOCH - 6000), start=1):
                await store.apply(batch(sequence, epoch=epoch))
                lifetimes = [await client.ttl(keys.counts(0, e)) for e in (EPOCH, EPOCH - 6000)]
                watermark = await client.ttl(keys.seen("r", "i"))
                assert 0 < max(lifetimes) <= 3 * 24 * 3600 + 600
                assert watermark >= max(lifetimes) + 24 * 3600 - 1
                assert watermark <= max(lifetimes) + 24 * 3600 + 1, "does not grow with each batch"

    asyncio.run(with_redis(redis, test, prefix="p"))


def test_counts_older_than_the_retention_are_seen_but_not_kept(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        assert await store.apply(batch(1, epoch=0)) == Applied(1, "late")
        assert await store.apply(batch(1, epoch=0)) == Applied(1, "duplicate")
        assert (await store.read("m", 0)).epochs == {}

    asyncio.run(with_redis(redis, test))


def test_another_schema_is_refused_and_nothing_written(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        async with Redis.from_url(redis.url) as client:
            await client.set(Keys("banditserve", "m").schema, "3")
            with pytest.raises(StoreSchemaError, match="says schema '3', this version knows '2'"):
                await store.apply(batch(1))
            with pytest.raises(StoreSchemaError):
                await store.read("m", EPOCH)
            assert await client.dbsize() == 1

    asyncio.run(with_redis(redis, test))


@pytest.mark.parametrize("field", ["value", "type", "watermark"])
def test_corrupt_data_is_refused_and_nothing_written(redis: RedisProcess, field: str) -> None:
    async def test(store: RedisStore) -> None:
        await store.apply(batch(1))
        keys = Keys("banditserve", "m")
        async with Redis.from_url(redis.url) as client:
            names = sorted(await client.hkeys(keys.counts(0, EPOCH)))
            if field == "value":
                await client.hset(keys.counts(0, EPOCH), names[-1], "x")
            elif field == "type":
                await client.set(keys.counts(0, EPOCH), "x")
            else:
                await client.set(keys.seen("r", "i"), "x")
            before = [await client.dump(key) for key in (keys.counts(0, EPOCH), keys.epochs(0))]
            with pytest.raises(StoreSchemaError):
                await store.apply(batch(2))
            after = [await client.dump(key) for key in (keys.counts(0, EPOCH), keys.epochs(0))]
            assert before == after

    asyncio.run(with_redis(redis, test))


def test_wrong_password_is_unavailable(redis: RedisProcess) -> None:
    async def test() -> None:
        store = RedisStore(RedisConfig(url=f"redis://:secret@127.0.0.1:{redis.port}"))
        with pytest.raises(StoreUnavailableError) as caught:
            await store.ping()
        assert "secret" not in str(caught.value)
        await store.close()

    asyncio.run(test())


def test_killed_redis_comes_back_with_everything(tmp_path: Path) -> None:
    process = RedisProcess(tmp_path)
    process.start()

    async def test() -> None:
        store = RedisStore(process.config)
        for sequence in range(1, 11):
            await store.apply(batch(sequence))
        before = await epochs(store)
        process.kill()
        started = time.monotonic()
        for call in (store.ping(), store.apply(batch(11)), store.read("m", EPOCH)):
            with pytest.raises(StoreUnavailableError):
                await call
        assert time.monotonic() - started < 3
        process.start()
        assert await epochs(store) == before
        assert await store.apply(batch(10)) == Applied(10, "duplicate")
        assert await store.apply(batch(11)) == Applied(11, "applied")
        assert (await epochs(store))[EPOCH][KEY].pulls == 11
        await store.close()

    try:
        asyncio.run(test())
    finally:
        process.stop()


def test_frozen_redis_does_not_hold_up_its_callers(tmp_path: Path) -> None:
    process = RedisProcess(tmp_path)
    process.start()

    async def test() -> None:
        store = RedisStore(process.config, timeout_s=0.3)
        await store.apply(batch(1))
        process.freeze()
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError, match=r"did not answer|Timeout"):
            await store.apply(batch(2))
        assert time.monotonic() - started < 1
        process.thaw()
        await store.apply(batch(2))
        assert (await epochs(store))[EPOCH][KEY].pulls == 2
        await store.close()

    try:
        asyncio.run(test())
    finally:
        process.stop()
