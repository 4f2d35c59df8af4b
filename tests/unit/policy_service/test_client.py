"""The client against a real service over a real store, reached without Ray."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from policy_service.api import (
    ArmCounts,
    AskItem,
    CellKey,
    Outcome,
    OutcomeBatch,
    RequestFeatures,
    SpeculationOptions,
    SyncReply,
)
from policy_service.client import PolicyClient
from policy_service.config import PolicyConfig
from policy_service.contexts import GLOBAL
from policy_service.errors import StoreUnavailableError
from policy_service.memory_store import MemoryStore
from policy_service.merge import totals
from policy_service.service import PolicyService
from policy_service.store import Applied

CONFIG = PolicyConfig(sync_period_s=0.01, sync_timeout_s=0.2)


class BreakableStore(MemoryStore):
    """A memory store that can be away."""

    is_away = False

    async def apply(self, batch: OutcomeBatch) -> Applied:
        if self.is_away:
            raise StoreUnavailableError("away")
        return await super().apply(batch)


class Handle:
    """What a deployment handle looks like; the Policy behind it can be away or hang."""

    def __init__(self, service: PolicyService) -> None:
        self.service = service
        self.mode = "up"
        self.num_calls = 0
        self.sync = self

    def remote(self, batches: list[OutcomeBatch], known_version: int) -> Awaitable[SyncReply]:
        return self._answer(batches, known_version)

    async def _answer(self, batches: list[OutcomeBatch], known_version: int) -> SyncReply:
        self.num_calls += 1
        if self.mode == "away":
            raise ConnectionError("no such actor")
        reply = await self.service.sync(batches, known_version)
        if self.mode == "loses replies":
            await asyncio.sleep(3600)
        return reply


class Rig:
    def __init__(self, config: PolicyConfig = CONFIG) -> None:
        self.further: dict[CellKey, ArmCounts] = {}
        self.store = BreakableStore()
        self.service = PolicyService(config, self.store, "m", time.time)
        self.handle = Handle(self.service)
        self.client = PolicyClient(
            config,
            "replica",
            "inc",
            "m",
            self.handle,
            {"a": "1"},
            seed=0,
            further_counts=self.take_further,
        )
        self.client.planner.open("s", RequestFeatures(), SpeculationOptions(mode="off"))

    def take_further(self) -> dict[CellKey, ArmCounts]:
        taken, self.further = self.further, {}
        return taken

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            [decision] = self.client.planner.ask([AskItem("s", 4)])
            outcome = Outcome(0, 0, 0, 1, 1.0, 0.0, 1, "none")
            self.client.planner.observe([("s", decision, outcome)])

    async def stored(self) -> int:
        cells = totals((await self.store.read("m", time.time())).epochs)
        return cells[CellKey(GLOBAL, "none")].pulls if cells else 0

    async def until(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110  # the condition is of another component
                await asyncio.sleep(0.005)


def run(test: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def with_client() -> None:
        rig = Rig()
        task = asyncio.create_task(rig.client.run())
        try:
            await test(rig)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(with_client())


def test_a_new_replica_waits_for_the_pooled_counts_but_not_for_ever() -> None:
    async def test(rig: Rig) -> None:
        rig.play(10)
        assert await rig.client.flush(2)
        await rig.service.publish()
        handle = Handle(rig.service)
        handle.mode = "away"
        late = PolicyClient(CONFIG, "late", "inc2", "m", handle, {"a": "1"}, seed=0)
        task = asyncio.create_task(late.run())
        assert not await late.first_answer(0.1)
        handle.mode = "up"
        assert await late.first_answer(5.0)
        assert late.status()["snapshot_version"] > 0
        task.cancel()

    run(test)


def test_counts_arrive_and_snapshots_come_back() -> None:
    async def test(rig: Rig) -> None:
        rig.play(10)
        assert await rig.client.flush(2)
        assert await rig.stored() == 10
        await rig.service.publish()
        await rig.until(lambda: rig.client.status()["snapshot_version"] > 0)
        status = rig.client.status()
        assert status["up"]
        assert status["away_since"] is None
        assert 0 <= status["snapshot_age_s"] < 5

    run(test)


def test_policy_away_is_shown_and_nothing_is_lost() -> None:
    async def test(rig: Rig) -> None:
        rig.handle.mode = "away"
        rig.play(7)
        await rig.until(lambda: not rig.client.status()["up"])
        status = rig.client.status()
        assert abs(status["away_since"] - time.time()) < 5
        assert status["missed"] >= 1
        assert status["reason"] == "ConnectionError: no such actor"
        rig.play(7)
        assert not await rig.client.flush(0.05)
        rig.handle.mode = "up"
        await rig.until(lambda: rig.client.status()["up"])
        assert await rig.client.flush(2)
        assert await rig.stored() == 14

    run(test)


def test_a_lost_reply_does_not_count_twice() -> None:
    async def test(rig: Rig) -> None:
        rig.handle.mode = "loses replies"
        rig.play(5)
        await rig.until(lambda: rig.client.status()["missed"] >= 2)
        rig.handle.mode = "up"
        assert await rig.client.flush(5)
        assert await rig.stored() == 5
        assert rig.service.status()["batches_duplicate"] >= 1

    run(test)


def test_store_away_still_gives_snapshots() -> None:
    async def test(rig: Rig) -> None:
        rig.play(3)
        assert await rig.client.flush(2)
        rig.store.is_away = True
        await rig.service.publish()
        rig.play(4)
        await rig.until(lambda: "store" in rig.client.status()["reason"])
        await rig.until(lambda: rig.client.status()["snapshot_version"] > 0)
        assert not rig.client.status()["up"]
        rig.store.is_away = False
        assert await rig.client.flush(10)
        assert await rig.stored() == 7

    run(test)


def test_much_is_sent_soon() -> None:
    async def slow() -> None:
        rig = Rig(PolicyConfig(sync_period_s=60))
        task = asyncio.create_task(rig.client.run())
        await rig.until(lambda: rig.handle.num_calls == 1)
        await asyncio.to_thread(rig.play, 300)
        await rig.until(lambda: rig.handle.num_calls >= 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(slow())


def test_what_else_was_counted_is_pooled_too() -> None:
    async def scenario() -> None:
        rig = Rig()
        key = CellKey("shadow", "a/score4/depth1/rank0", "1")
        rig.further = {key: ArmCounts(pulls=10, accepted=3, reward_micros=3_000_000)}
        assert await rig.client.flush(2.0)
        cells = totals((await rig.store.read("m", time.time())).epochs)
        assert (cells[key].pulls, cells[key].accepted) == (10, 3)
        assert await rig.client.flush(0.1)
        assert totals((await rig.store.read("m", time.time())).epochs)[key].pulls == 10

    asyncio.run(scenario())


def test_a_reset_reaches_the_replica_and_what_came_before_is_forgotten() -> None:
    async def test(rig: Rig) -> None:
        rig.play(5)
        assert await rig.client.flush(2)
        await rig.service.publish()
        await rig.until(lambda: rig.client.status()["snapshot_version"] > 0)
        first = rig.client.status()["snapshot_version"]
        assert await rig.store.reset("m", 0) == 1
        await rig.service.publish()
        await rig.until(lambda: rig.client.status()["snapshot_version"] > first)
        assert await rig.stored() == 0
        rig.play(3)
        assert await rig.client.flush(2)
        assert await rig.stored() == 3
        assert rig.service.status()["batches_stale"] == 0

    run(test)
