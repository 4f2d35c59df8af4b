from __future__ import annotations

import asyncio
import logging
import pickle
from dataclasses import replace

import pytest

from policy_service.api import SHADOW, ArmCounts, CellKey, OutcomeBatch, SyncReply
from policy_service.availability import Availability
from policy_service.config import PolicyConfig
from policy_service.contexts import GLOBAL
from policy_service.errors import PolicyConfigError, StoreUnavailableError
from policy_service.memory_store import MemoryStore
from policy_service.service import PolicyService
from policy_service.store import Applied

KEY = CellKey(GLOBAL, "a:4", "1")


class Clock:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class FailingStore(MemoryStore):
    num_calls = 0

    async def apply(self, batch: OutcomeBatch) -> Applied:
        self.num_calls += 1
        raise StoreUnavailableError("connection refused")


def batch(sequence: int, pulls: int = 1, target_model: str = "m") -> OutcomeBatch:
    deltas = {KEY: ArmCounts(pulls=pulls, reward_tokens=5 * pulls, reward_micros=3_000_000 * pulls)}
    return OutcomeBatch("r", "i", sequence, 999_600, target_model, deltas)


def sync(service: PolicyService, batches: list[OutcomeBatch], known: int = 0) -> SyncReply:
    return asyncio.run(service.sync(batches, known))


def test_applies_in_order_and_stops_at_a_gap() -> None:
    service = PolicyService(PolicyConfig(), MemoryStore(), "m", Clock())
    assert sync(service, [batch(1), batch(1), batch(2), batch(4), batch(5)]).applied_sequence == 2
    status = service.status()
    assert (status["batches_applied"], status["batches_duplicate"]) == (2, 1)
    assert status["batches_refused"] == 1


def test_snapshot_is_sent_to_those_that_have_another() -> None:
    service = PolicyService(PolicyConfig(), MemoryStore(), "m", Clock())
    assert sync(service, [batch(1)]).snapshot is None, "there is none yet"
    asyncio.run(service.publish())
    snapshot = sync(service, [], 0).snapshot
    assert snapshot is not None
    assert snapshot.cells == {KEY: (1.0, 3.0)}
    assert sync(service, [], snapshot.version).snapshot is None
    assert sync(service, [], snapshot.version + 10**9).snapshot == snapshot, "clock was set back"
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot


def test_versions_grow_only_with_changes_and_across_restarts() -> None:
    clock, store = Clock(), MemoryStore()
    service = PolicyService(PolicyConfig(), store, "m", clock)
    versions = []
    for pulls in (1, None, 2):
        if pulls is not None:
            sync(service, [batch(pulls, pulls)])
        asyncio.run(service.publish())
        versions.append(service.status()["snapshot_version"])
    assert versions[0] == versions[1] < versions[2]
    clock.now += 1
    restarted = PolicyService(PolicyConfig(), store, "m", clock)
    asyncio.run(restarted.publish())
    assert restarted.status()["snapshot_version"] > versions[2]
    assert restarted.dump()["contexts"][GLOBAL]["a:4@1"]["pulls"] == 3


def test_store_away_is_said_at_once_and_asked_rarely() -> None:
    clock, store = Clock(), FailingStore()
    service = PolicyService(PolicyConfig(), store, "m", clock)
    replies = [sync(service, [batch(1), batch(2)]) for _ in range(50)]
    assert all(reply.store_away and reply.applied_sequence == 0 for reply in replies)
    assert store.num_calls == 1
    clock.now += 1
    sync(service, [batch(1)])
    assert store.num_calls == 2
    assert service.status()["store_away_since"] == 1_000_000.0
    assert "connection refused" in service.status()["store_reason"]


def test_batches_of_another_model_are_refused() -> None:
    service = PolicyService(PolicyConfig(), MemoryStore(), "m", Clock())
    with pytest.raises(PolicyConfigError, match="pools those of 'm'"):
        sync(service, [batch(1, target_model="other")])


def test_availability_logs_once_each_way(caplog: pytest.LogCaptureFixture) -> None:
    other = Availability("the other", logging.getLogger("test"), 0.5, 2.0)
    with caplog.at_level(logging.INFO, "test"):
        delays = []
        for now in range(5):
            other.failed(now, "why")
            delays.append(other.delay_s)
        other.succeeded(9)
        other.succeeded(10)
    assert delays == [0.5, 1, 2, 2, 2]
    assert [record.getMessage() for record in caplog.records] == [
        "the other is away: why",
        "the other is back after 9.0 s and 5 failures",
    ]
    assert (other.is_up, other.num_failures, other.delay_s) == (True, 5, 0)


def test_availability_survives_a_clock_set_back() -> None:
    other = Availability("the other", logging.getLogger("test"), 0.5, 2.0)
    other.failed(1000, "why")
    assert not other.may_try(1000.2)
    assert other.may_try(1000.5)
    assert other.may_try(10)


def test_arms_and_conditional_acceptance_are_dumped_apart() -> None:
    store = MemoryStore()
    service = PolicyService(PolicyConfig(), store, "m", Clock())
    deltas = {
        KEY: ArmCounts(pulls=2, accepted=6, reward_micros=4_000_000),
        CellKey(GLOBAL, "none"): ArmCounts(pulls=1),
        CellKey(GLOBAL, "a/score4/depth1/rank0", "1"): ArmCounts(pulls=9, accepted=3),
        CellKey(SHADOW, "a/score4/depth1/rank0", "1"): ArmCounts(pulls=5),
    }
    sync(service, [OutcomeBatch("r", "i", 1, 999_000, "m", deltas)])
    asyncio.run(service.publish())
    dump = service.dump()
    assert set(dump["contexts"]) == {GLOBAL}
    assert set(dump["contexts"][GLOBAL]) == {"a:4@1", "none"}
    arm = dump["contexts"][GLOBAL]["a:4@1"]
    assert (arm["pulls"], arm["accepted"], arm["mean_reward"]) == (2, 6, 2.0)
    assert arm["age_s"] == 1_000_000 - 999_600
    assert {context: list(cells) for context, cells in dump["cells"].items()} == {
        GLOBAL: ["a/score4/depth1/rank0@1"],
        SHADOW: ["a/score4/depth1/rank0@1"],
    }


def test_a_reset_is_published_as_an_empty_snapshot() -> None:
    clock, store = Clock(), MemoryStore()
    service = PolicyService(PolicyConfig(), store, "m", clock)
    sync(service, [batch(1)])
    asyncio.run(service.publish())
    first = sync(service, []).snapshot
    assert first is not None
    assert asyncio.run(store.reset("m", first.generation)) == 1
    asyncio.run(service.publish())
    second = sync(service, [], first.version).snapshot
    assert second is not None
    assert (second.generation, len(second.cells)) == (1, 0)
    assert second.version > first.version
    sync(service, [replace(batch(2), generation=0), replace(batch(3), generation=1)])
    assert service.status()["batches_stale"] == 1
    asyncio.run(service.publish())
    assert service.dump()["contexts"][GLOBAL]["a:4@1"]["pulls"] == 1
