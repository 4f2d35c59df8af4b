"""What every store must hold, over memory and over a real Redis; and what only Redis can suffer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.errors import PolicyConfigError, StoreSchemaError, StoreUnavailableError
from policy_service.memory_store import MemoryStore
from policy_service.redis_schema import Keys
from policy_service.redis_store import RedisStore
from policy_service.store import Applied, CounterStore
from tests.integration.redis_fixture import RedisProcess

KEY = CellKey("n=a|r=chat|s=|c=0|l=0|t=0", "prompt_lookup:4", "v/1 é")
OTHER = CellKey("global", "none")
COUNTS = ArmCounts(1, 2, 3, 4, 5, 6, 7)
EPOCH = int(time.time() // 600) * 600
Test = Callable[[CounterStore], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path_factory.mktemp("redis"))
    process.start()
    yield process
    process.stop()


def batch(
    sequence: int, epoch: int = EPOCH, incarnation: str = "i", model: str = "m", **cells: Any
) -> OutcomeBatch:
    return OutcomeBatch(
        "r", incarnation, sequence, epoch, model, cells.get("deltas", {KEY: COUNTS})
    )


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
def run(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    """Run a test with an empty store."""

    def run_test(test: Test) -> None:
        async def with_store() -> None:
            if request.param == "memory":
                await test(MemoryStore())
            else:
                await with_redis(request.getfixturevalue("redis"), test)

        asyncio.run(with_store())

    return run_test


async def with_redis(process: RedisProcess, test: Callable[[Any], Any], **options: Any) -> None:
    async with Redis.from_url(process.url) as client:
        await client.flushall()
    store = RedisStore(process.url, **options)
    try:
        await test(store)
    finally:
        await store.close()


def test_applies_once_and_in_order(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        assert await store.apply(batch(2)) == Applied(0, "gap")
        assert await store.apply(batch(1)) == Applied(1, "applied")
        assert await store.apply(batch(1)) == Applied(1, "duplicate")
        assert await store.apply(batch(3)) == Applied(1, "gap")
        assert await store.apply(batch(2, deltas={KEY: COUNTS, OTHER: COUNTS})) == Applied(
            2, "applied"
        )
        assert await store.apply(batch(1)) == Applied(2, "duplicate")
        assert await store.read("m", EPOCH) == {EPOCH: {KEY: COUNTS + COUNTS, OTHER: COUNTS}}

    run(test)


def test_incarnations_models_and_epochs_are_kept_apart(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1))
        await store.apply(batch(1, incarnation="j", epoch=EPOCH - 600))
        await store.apply(batch(1, model="org/other model"))
        assert await store.read("m", EPOCH) == {EPOCH: {KEY: COUNTS}, EPOCH - 600: {KEY: COUNTS}}
        assert await store.read("org/other model", EPOCH) == {EPOCH: {KEY: COUNTS}}
        assert await store.read("unknown", EPOCH) == {}

    run(test)


def test_reads_follow_late_changes_to_closed_epochs(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1, epoch=EPOCH - 1200))
        first = await store.read("m", EPOCH)
        assert await store.read("m", EPOCH) == first
        await store.apply(batch(2, epoch=EPOCH - 1200))
        assert (await store.read("m", EPOCH))[EPOCH - 1200] == {KEY: COUNTS + COUNTS}
        assert first[EPOCH - 1200] == {KEY: COUNTS}, "an answer given is not changed"

    run(test)


def test_old_epochs_expire(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1))
        expiry = EPOCH + 600 + 3 * 24 * 3600
        assert EPOCH in await store.read("m", expiry - 1)
        assert await store.read("m", expiry) == {}
        assert await store.apply(batch(1)) == Applied(1, "duplicate")

    run(test)


def test_many_writers_at_once(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        async def write(incarnation: str) -> None:
            for sequence in range(1, 21):
                await asyncio.gather(
                    *(store.apply(batch(sequence, incarnation=incarnation)) for _ in "12")
                )

        await asyncio.gather(*(write(str(n)) for n in range(8)))
        cells = (await store.read("m", EPOCH))[EPOCH]
        assert cells[KEY].pulls == 8 * 20

    run(test)


@pytest.mark.redis
def test_watermark_outlives_the_counters_it_guards(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        keys = Keys("p", "m")
        async with Redis.from_url(redis.url, decode_responses=True) as client:
            for sequence, epoch in enumerate((EPOCH, EPOCH - 6000), start=1):
                await store.apply(batch(sequence, epoch=epoch))
                lifetimes = [await client.ttl(keys.counts(e)) for e in (EPOCH, EPOCH - 6000)]
                watermark = await client.ttl(keys.seen("r", "i"))
                assert 0 < max(lifetimes) <= 3 * 24 * 3600 + 600
                assert watermark >= max(lifetimes) + 24 * 3600 - 1
                assert watermark <= max(lifetimes) + 24 * 3600 + 1, "does not grow with each batch"

    asyncio.run(with_redis(redis, test, prefix="p"))


@pytest.mark.redis
def test_counts_older_than_the_retention_are_seen_but_not_kept(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        assert await store.apply(batch(1, epoch=0)) == Applied(1, "applied")
        assert await store.apply(batch(1, epoch=0)) == Applied(1, "duplicate")
        assert await store.read("m", 0) == {}

    asyncio.run(with_redis(redis, test))


@pytest.mark.redis
def test_another_schema_is_refused_and_nothing_written(redis: RedisProcess) -> None:
    async def test(store: RedisStore) -> None:
        async with Redis.from_url(redis.url) as client:
            await client.set(Keys("banditserve", "m").schema, "2")
            with pytest.raises(StoreSchemaError, match="says schema '2', this version knows '1'"):
                await store.apply(batch(1))
            with pytest.raises(StoreSchemaError):
                await store.read("m", EPOCH)
            assert await client.dbsize() == 1

    asyncio.run(with_redis(redis, test))


@pytest.mark.redis
@pytest.mark.parametrize("field", ["value", "type", "watermark"])
def test_corrupt_data_is_refused_and_nothing_written(redis: RedisProcess, field: str) -> None:
    async def test(store: RedisStore) -> None:
        await store.apply(batch(1))
        keys = Keys("banditserve", "m")
        async with Redis.from_url(redis.url) as client:
            names = sorted(await client.hkeys(keys.counts(EPOCH)))
            if field == "value":
                await client.hset(keys.counts(EPOCH), names[-1], "x")
            elif field == "type":
                await client.set(keys.counts(EPOCH), "x")
            else:
                await client.set(keys.seen("r", "i"), "x")
            before = [await client.dump(key) for key in (keys.counts(EPOCH), keys.epochs)]
            with pytest.raises(StoreSchemaError):
                await store.apply(batch(2))
            after = [await client.dump(key) for key in (keys.counts(EPOCH), keys.epochs)]
            assert before == after

    asyncio.run(with_redis(redis, test))


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "redis://h:port"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(PolicyConfigError, match="not a Redis URL"):
        RedisStore(url)


@pytest.mark.redis
def test_wrong_password_is_unavailable(redis: RedisProcess) -> None:
    async def test() -> None:
        store = RedisStore(f"redis://:secret@127.0.0.1:{redis.port}")
        with pytest.raises(StoreUnavailableError) as caught:
            await store.ping()
        assert "secret" not in str(caught.value)
        await store.close()

    asyncio.run(test())


@pytest.mark.redis
def test_killed_redis_comes_back_with_everything(tmp_path: Path) -> None:
    process = RedisProcess(tmp_path)
    process.start()

    async def test() -> None:
        store = RedisStore(process.url)
        for sequence in range(1, 11):
            await store.apply(batch(sequence))
        before = await store.read("m", EPOCH)
        process.kill()
        started = time.monotonic()
        for call in (store.ping(), store.apply(batch(11)), store.read("m", EPOCH)):
            with pytest.raises(StoreUnavailableError):
                await call
        assert time.monotonic() - started < 3
        process.start()
        assert await store.read("m", EPOCH) == before
        assert await store.apply(batch(10)) == Applied(10, "duplicate")
        assert await store.apply(batch(11)) == Applied(11, "applied")
        assert (await store.read("m", EPOCH))[EPOCH][KEY].pulls == 11
        await store.close()

    try:
        asyncio.run(test())
    finally:
        process.stop()


@pytest.mark.redis
def test_frozen_redis_does_not_hold_up_its_callers(tmp_path: Path) -> None:
    process = RedisProcess(tmp_path)
    process.start()

    async def test() -> None:
        store = RedisStore(process.url, timeout_s=0.3)
        await store.apply(batch(1))
        process.freeze()
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError, match=r"did not answer|Timeout"):
            await store.apply(batch(2))
        assert time.monotonic() - started < 1
        process.thaw()
        await store.apply(batch(2))
        assert (await store.read("m", EPOCH))[EPOCH][KEY].pulls == 2
        await store.close()

    try:
        asyncio.run(test())
    finally:
        process.stop()
