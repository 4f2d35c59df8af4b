"""Hours without the store, on a clock that is set: nothing lost, nothing twice, bounded memory."""

from __future__ import annotations

import asyncio
import random

import pytest

from policy_service.api import ArmCounts, CellKey, OutcomeBatch, RequestFeatures
from policy_service.config import PolicyConfig
from policy_service.contexts import GLOBAL, context_chain
from policy_service.errors import StoreUnavailableError
from policy_service.ledger import Ledger
from policy_service.memory_store import MemoryStore
from policy_service.merge import totals
from policy_service.service import PolicyService
from policy_service.store import Applied, Pool

HOUR_S = 3600
STEP_S = 30
START = 1_000_200.0


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


class StoreThatGoesAway(MemoryStore):
    is_away = False
    loses_answers = False

    async def apply(self, batch: OutcomeBatch) -> Applied:
        if self.is_away:
            raise StoreUnavailableError("away")
        applied = await super().apply(batch)
        if self.loses_answers:
            raise StoreUnavailableError("answer lost")
        return applied

    async def read(self, target_model: str, now: float) -> Pool:
        if self.is_away:
            raise StoreUnavailableError("away")
        return await super().read(target_model, now)


class World:
    """Replicas, a Policy and a store on one clock."""

    def __init__(self, config: PolicyConfig, num_contexts: int) -> None:
        self.clock = Clock()
        self.store = StoreThatGoesAway()
        self.service = PolicyService(config, self.store, "m", self.clock)
        self.books = [Ledger(config, f"r{n}", f"i{n}", "m") for n in range(3)]
        self.rng = random.Random(7)
        self.keys = [
            CellKey(context_chain(RequestFeatures(tenant=f"t{n}"))[0], f"a:{gamma}", "1")
            for n in range(num_contexts)
            for gamma in (2, 4)
        ]
        self.truth: dict[int, int] = {}
        self.most_unsent = 0

    async def play(self, seconds: int) -> None:
        for _ in range(0, seconds, STEP_S):
            self.clock.now += STEP_S
            epoch = int(self.clock.now // 600) * 600
            for book in self.books:
                deltas = {key: ArmCounts(pulls=1) for key in self.rng.sample(self.keys, 8)}
                book.add(deltas, self.clock.now)
                self.truth[epoch] = self.truth.get(epoch, 0) + len(deltas)
            await self.exchange()

    async def exchange(self) -> None:
        for book in self.books:
            batches = book.outgoing(self.clock.now)
            reply = await self.service.sync(batches, 0)
            if reply.store_away:
                book.acknowledge(reply.applied_sequence, self.clock.now)
            elif batches:
                book.reconcile(reply.applied_sequence, self.clock.now)
            self.most_unsent = max(self.most_unsent, book.num_unsent_cells)

    async def settle(self) -> None:
        for _ in range(100):
            self.clock.now += 1
            await self.exchange()
            if all(book.is_settled for book in self.books):
                return
        raise AssertionError("not settled")

    async def stored(self) -> dict[int, int]:
        epochs = (await self.store.read("m", self.clock.now)).epochs
        return {
            epoch: sum(
                counts.pulls
                for key, counts in totals({epoch: cells}).items()
                if key.context == GLOBAL
            )
            for epoch, cells in epochs.items()
        }


@pytest.mark.parametrize(("num_contexts", "bound"), [(10, 20_000), (300, 2_000)])
def test_eight_hours_away(num_contexts: int, bound: int) -> None:
    async def test() -> None:
        config = PolicyConfig(max_unsent_cells=bound)
        world = World(config, num_contexts)
        await world.play(HOUR_S)
        world.store.loses_answers = True
        await world.play(60)
        world.store.loses_answers, world.store.is_away = False, True
        await world.play(8 * HOUR_S)
        assert world.most_unsent <= bound
        world.store.is_away = False
        await world.settle()
        assert sum(book.num_dropped_pulls + book.num_lost_batches for book in world.books) == 0
        assert await world.stored() == world.truth, "every round in the epoch it was played in"
        await world.play(HOUR_S)
        await world.settle()
        assert await world.stored() == world.truth

    asyncio.run(test())


def test_what_no_buffer_can_hold_is_counted() -> None:
    async def test() -> None:
        world = World(PolicyConfig(max_unsent_cells=6), 4)
        world.store.is_away = True
        await world.play(2 * HOUR_S)
        assert world.most_unsent <= 6
        world.store.is_away = False
        await world.settle()
        dropped = sum(book.num_dropped_pulls for book in world.books)
        assert dropped > 0
        assert sum((await world.stored()).values()) + dropped == sum(world.truth.values())

    asyncio.run(test())


def test_a_reset_while_away_forgets_what_was_counted_before() -> None:
    async def test() -> None:
        world = World(PolicyConfig(), 4)
        await world.play(600)
        await world.service.publish()
        world.books[0].begin_generation(0)
        world.store.is_away = True
        await world.play(600)
        world.store.is_away = False
        assert await world.store.reset("m", 0) == 1
        world.clock.now += 5  # the Policy tries again
        await world.service.publish()
        snapshot = (await world.service.sync([], 0)).snapshot
        assert snapshot is not None
        assert (snapshot.generation, len(snapshot.cells)) == (1, 0)
        for book in world.books:
            book.begin_generation(0)
            book.begin_generation(snapshot.generation)
        await world.settle()
        assert world.books[0].num_reset_pulls > 0
        before = await world.stored()
        world.truth = {}
        await world.play(600)
        await world.settle()
        after = await world.stored()
        gained = sum(after.values()) - sum(before.values())
        assert gained == sum(world.truth.values())

    asyncio.run(test())
