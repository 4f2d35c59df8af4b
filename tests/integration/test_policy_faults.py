"""Whatever happens between replicas, Policies and Redis, the counts are those that were played."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from policy_service.api import ArmCounts, CellKey, OutcomeBatch, RequestFeatures
from policy_service.config import PolicyConfig
from policy_service.contexts import context_chain
from policy_service.ledger import PROBE_PERIOD_S, Ledger
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.store import RedisStore
from policy_service.service import PolicyService
from tests.integration.proxies import Proxy
from tests.integration.redis_fixture import QUOTED_PASSWORD, RedisProcess

pytestmark = pytest.mark.redis

CONFIG = PolicyConfig()
KEYS = [
    CellKey(context_chain(RequestFeatures(tenant=f"t{n}"))[0], f"a:{gamma}", "1")
    for n in range(4)
    for gamma in (2, 4)
]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path)
    process.start()
    yield process
    process.stop()


class Rig:
    """Replicas that play and sync with Policies on one Redis; time is told to the ledgers."""

    def __init__(self, config: RedisConfig, num_policies: int = 1) -> None:
        self.config = config
        self.services = [self.policy() for _ in range(num_policies)]
        self.books = [Ledger(CONFIG, f"r{n}", f"i{n}", "m") for n in range(3)]
        self.truth: dict[CellKey, int] = {}
        self.rng = random.Random(3)
        self.now = time.time()

    def policy(self) -> PolicyService:
        store = RedisStore(self.config, timeout_s=0.5)
        return PolicyService(CONFIG, store, "m", time.time)

    def play(self) -> None:
        for book in self.books:
            deltas = {key: ArmCounts(pulls=1) for key in self.rng.sample(KEYS, 3)}
            book.add(deltas, self.now)
            for key in deltas:
                self.truth[key] = self.truth.get(key, 0) + 1

    async def sync(self, book: Ledger) -> None:
        batches = book.outgoing(self.now)
        reply = await self.rng.choice(self.services).sync(batches, 0)
        if reply.store_away:
            book.acknowledge(reply.applied_sequence, self.now)
        elif batches:
            book.reconcile(reply.applied_sequence, self.now)

    async def settle(self, num_probes: int = 1) -> None:
        """Sync until all is acknowledged; less time passes than replicas keep batches for."""
        deadline = time.monotonic() + 20
        for _ in range(num_probes):
            self.now += PROBE_PERIOD_S
            while True:
                for book in self.books:
                    await self.sync(book)
                if all(book.is_settled for book in self.books):
                    break
                assert time.monotonic() < deadline, self.state()
                await asyncio.sleep(0.05)

    def state(self) -> str:
        """Return what everybody knows, for a failure."""
        books = [([b.sequence for b in k.outgoing(self.now)], k._incarnation) for k in self.books]
        return "\n".join(map(str, [*books, *(service.status() for service in self.services)]))

    async def check(self) -> None:
        """Settle, and compare what another process reads with what was played."""
        await self.settle(num_probes=3)
        assert not any(book.num_dropped_pulls + book.num_lost_batches for book in self.books)
        fresh = RedisStore(self.config)
        read = {epoch: dict(c) for epoch, c in (await fresh.read("m", self.now)).epochs.items()}
        await fresh.close()
        found: dict[CellKey, int] = {}
        for cells in read.values():
            for key, counts in cells.items():
                found[key] = found.get(key, 0) + counts.pulls
        assert found == self.truth
        for service in self.services:
            assert await service._store.read("m", self.now) == await service._store.read(
                "m", self.now
            )
            assert (await service._store.read("m", self.now)).epochs == read, "what it keeps"

    async def close(self) -> None:
        for service in self.services:
            await service.close()


@asynccontextmanager
async def rig_behind(
    redis: RedisProcess, num_policies: int = 1
) -> AsyncIterator[tuple[Rig, Proxy]]:
    async with Proxy(redis.port).running() as proxy:
        rig = Rig(
            RedisConfig(url=f"redis://:{QUOTED_PASSWORD}@127.0.0.1:{proxy.port}/0"), num_policies
        )
        try:
            yield rig, proxy
        finally:
            await rig.close()


@pytest.mark.parametrize("where", ["before the script", "after it", "while publishing"])
def test_a_policy_that_crashes_at_any_step_of_a_sync(redis: RedisProcess, where: str) -> None:
    async def test() -> None:
        async with rig_behind(redis) as (rig, proxy):
            rig.play()
            await rig.sync(rig.books[0])
            for step in range(5):
                rig.play()
                service = rig.services[0]
                call: Coroutine[Any, Any, object] = service.publish()
                if where != "while publishing":
                    call.close()
                    call = service.sync(rig.books[1].outgoing(rig.now), 0)
                task = asyncio.create_task(call)
                if where == "after it":
                    proxy.cut_replies = 1
                    await asyncio.wait([task], timeout=1.0)
                else:
                    await asyncio.sleep(step / 2000)  # another point of it each time
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await service.close()
                rig.services[0] = rig.policy()
            await rig.check()

    asyncio.run(test())


@pytest.mark.parametrize("seed", range(4))
def test_resets_duplicates_reordering_and_losses_with_two_policies(
    redis: RedisProcess, seed: int
) -> None:
    async def test() -> None:
        async with rig_behind(redis, num_policies=2) as (rig, proxy):
            rig.rng.seed(seed)
            delayed: list[list[OutcomeBatch]] = []
            for _ in range(60):
                rig.play()
                book = rig.rng.choice(rig.books)
                event = rig.rng.choice(
                    ["sync", "cut request", "cut reply", "delay", "repeat", "both", "publish"]
                )
                proxy.cut_requests = int(event == "cut request") * rig.rng.choice([1, 3])
                proxy.cut_replies = int(event == "cut reply") * rig.rng.choice([1, 3])
                if event == "delay":
                    delayed.append(book.outgoing(rig.now))
                elif event == "repeat" and delayed:
                    await rig.rng.choice(rig.services).sync(rig.rng.choice(delayed), 0)
                elif event == "both":
                    batches = book.outgoing(rig.now)
                    await asyncio.gather(*(service.sync(batches, 0) for service in rig.services))
                elif event == "publish":
                    await asyncio.gather(*(service.publish() for service in rig.services))
                else:
                    await rig.sync(book)
            proxy.cut_requests = proxy.cut_replies = 0
            assert proxy.num_cut > 0
            await rig.check()

    asyncio.run(test())


def test_a_killed_redis_replays_its_append_only_file(redis: RedisProcess) -> None:
    async def test() -> None:
        rig = Rig(redis.config, num_policies=2)
        for _ in range(3):
            for _ in range(5):
                rig.play()
                await asyncio.gather(*(rig.sync(book) for book in rig.books))
            redis.kill()
            rig.play()
            await asyncio.gather(*(rig.sync(book) for book in rig.books))
            redis.start()
        await rig.check()
        await rig.close()

    asyncio.run(test())


def test_a_failover_that_loses_the_tail_is_repaired_from_what_replicas_keep(
    redis: RedisProcess,
) -> None:
    async def test() -> None:
        rig = Rig(redis.config, num_policies=2)
        rig.play()
        await rig.settle()
        redis.stop()
        redis.save_data()
        redis.start()
        for _ in range(5):
            rig.play()
            await rig.settle()
        redis.kill()
        redis.restore_data()
        redis.start()
        lost = RedisStore(redis.config)
        epochs = (await lost.read("m", rig.now)).epochs
        await lost.close()
        held = sum(counts.pulls for cells in epochs.values() for counts in cells.values())
        assert held < sum(rig.truth.values()), "the tail is lost"
        rig.play()
        await rig.check()
        await rig.close()

    asyncio.run(test())


def test_a_failover_that_loses_a_reset_does_not_bring_old_counts_back(redis: RedisProcess) -> None:
    async def test() -> None:
        rig = Rig(redis.config)
        rig.play()
        await rig.settle()
        redis.stop()
        redis.save_data()
        redis.start()
        store = RedisStore(redis.config)
        assert await store.reset("m", 0) == 1
        rig.truth.clear()
        for book in rig.books:
            book.begin_generation(1)
        rig.play()
        await rig.settle()
        redis.kill()
        redis.restore_data()
        redis.start()
        rig.play()
        await rig.settle()
        pool = await store.read("m", rig.now)
        assert pool.generation == 1
        found = sum(c.pulls for cells in pool.epochs.values() for c in cells.values())
        assert found == sum(rig.truth.values())
        await store.close()
        await rig.close()

    asyncio.run(test())
