"""The Policy of a replayed fleet: the real ledger, service and pooling, on replayed time."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from policy_service.api import EMPTY_SNAPSHOT
from policy_service.config import PolicyConfig
from policy_service.ledger import Ledger
from policy_service.memory_store import MemoryStore
from policy_service.planner import Planner
from policy_service.service import PolicyService

T = TypeVar("T")


class ReplayedPool:
    """Pools what planners count, and gives them snapshots, as often as the configuration says.

    It may outlive a replay, and then carries on what was learnt from one to the next.

    Args:
        config: How to pool.
        target_model: Name of the target model.
    """

    def __init__(self, config: PolicyConfig, target_model: str) -> None:
        self._config = config
        self._now_s = 0.0
        self._ledger = Ledger(config, "replay", "1", target_model)
        store = MemoryStore(config.epoch_s, config.retention_s)
        self._service = PolicyService(config, store, target_model, lambda: self._now_s)
        self._snapshot = EMPTY_SNAPSHOT
        self._exchange_at = 0.0

    def pass_time(self, planner: Planner, ms: float) -> None:
        """Let time pass; exchange counts for a snapshot whenever it is time to."""
        self._now_s += ms / 1e3
        if self._now_s >= self._exchange_at:
            self._exchange_at = self._now_s + self._config.publish_period_s
            self.exchange(planner)

    def exchange(self, planner: Planner) -> None:
        """Take in a planner's counts, make a snapshot of all, and give it to the planner."""
        self._ledger.add(planner.take_deltas(), self._now_s)
        version = self._snapshot.version
        while batches := self._ledger.outgoing(self._now_s):
            reply = _result(self._service.sync(batches, version))
            self._ledger.reconcile(reply.applied_sequence, self._now_s)
        _result(self._service.publish())
        reply = _result(self._service.sync([], version))
        self._snapshot = reply.snapshot or self._snapshot
        planner.set_snapshot(self._snapshot)


def _result(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine gives that waits for nothing, as all over a store in memory do."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("expected a store that answers at once")
