"""What every store must hold, over memory and over a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from policy_service.memory_store import MemoryStore
from policy_service.store import Applied, CounterStore, Pool
from tests.integration.redis_fixture import RedisProcess
from tests.integration.stored_counts import COUNTS, EPOCH, KEY, OTHER, batch, epochs, with_redis

Test = Callable[[CounterStore], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path_factory.mktemp("redis"))
    process.start()
    yield process
    process.stop()


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
        assert await epochs(store) == {EPOCH: {KEY: COUNTS + COUNTS, OTHER: COUNTS}}

    run(test)


def test_incarnations_models_and_epochs_are_kept_apart(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1))
        await store.apply(batch(1, incarnation="j", epoch=EPOCH - 600))
        await store.apply(batch(1, model="org/other model"))
        assert await epochs(store) == {EPOCH: {KEY: COUNTS}, EPOCH - 600: {KEY: COUNTS}}
        assert await epochs(store, "org/other model") == {EPOCH: {KEY: COUNTS}}
        assert await epochs(store, "unknown") == {}

    run(test)


def test_reads_follow_late_changes_to_closed_epochs(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1, epoch=EPOCH - 1200))
        first = await epochs(store)
        assert (await epochs(store))[EPOCH - 1200] is first[EPOCH - 1200], "nothing changed"
        await store.apply(batch(2, epoch=EPOCH - 1200))
        assert (await epochs(store))[EPOCH - 1200] == {KEY: COUNTS + COUNTS}
        assert first[EPOCH - 1200] == {KEY: COUNTS}, "an answer given is not changed"

    run(test)


def test_old_epochs_expire(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1))
        expiry = EPOCH + 600 + 3 * 24 * 3600
        assert EPOCH in (await store.read("m", expiry - 1)).epochs
        assert (await store.read("m", expiry)).epochs == {}
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
        cells = (await epochs(store))[EPOCH]
        assert cells[KEY].pulls == 8 * 20

    run(test)


def test_a_reset_ends_a_generation_once(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1))
        assert (await store.read("m", EPOCH)).generation == 0
        assert await store.reset("m", 0) == 1
        assert await store.reset("m", 0) == 1, "it had been done"
        assert await store.read("m", EPOCH) == Pool(1, {})
        assert await store.apply(replace(batch(2), generation=0)) == Applied(2, "stale")
        assert await store.apply(replace(batch(2), generation=0)) == Applied(2, "duplicate")
        assert await store.read("m", EPOCH) == Pool(1, {})
        assert await store.apply(replace(batch(3), generation=1)) == Applied(3, "applied")
        assert await store.apply(batch(4)) == Applied(4, "applied"), "of any generation"
        assert await store.read("m", EPOCH) == Pool(1, {EPOCH: {KEY: COUNTS + COUNTS}})

    run(test)


def test_a_batch_of_a_later_generation_begins_it(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1))
        await store.apply(replace(batch(2), generation=3))
        assert await store.read("m", EPOCH) == Pool(3, {EPOCH: {KEY: COUNTS}})

    run(test)


def test_cells_are_moved_and_epochs_dropped(run: Callable[[Test], None]) -> None:
    async def test(store: CounterStore) -> None:
        await store.apply(batch(1, deltas={KEY: COUNTS, OTHER: COUNTS}))
        await store.apply(batch(2, epoch=EPOCH - 600))
        for _ in range(2):
            await store.move("m", EPOCH, [(KEY, OTHER)])
            assert (await epochs(store))[EPOCH] == {OTHER: COUNTS + COUNTS}
        sizes = await store.measure("m")
        assert set(sizes) == {EPOCH, EPOCH - 600}
        assert min(sizes.values()) > 50
        await store.drop("m", EPOCH - 600)
        assert set(await epochs(store)) == {EPOCH}
        assert await store.apply(batch(2, epoch=EPOCH - 600)) == Applied(2, "duplicate")

    run(test)
