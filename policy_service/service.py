"""What the Policy does: applies batches, publishes snapshots, says how it is. Knows no Ray.

Not safe for use from several threads; calls may overlap on one event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from policy_service.api import (
    EMPTY_SNAPSHOT,
    ArmCounts,
    CellKey,
    OutcomeBatch,
    Snapshot,
    SyncReply,
)
from policy_service.availability import Availability, describe
from policy_service.config import PolicyConfig
from policy_service.errors import PolicyConfigError, StoreSchemaError, StoreUnavailableError
from policy_service.merge import pooled_cells, totals
from policy_service.store import CounterStore

logger = logging.getLogger(__name__)

SYNC_BUDGET_S = 0.8
"""A call stops applying batches after this; the replica sends the rest again."""


class PolicyService:
    """Pools the counts of all replicas of one target model."""

    def __init__(
        self,
        config: PolicyConfig,
        store: CounterStore,
        target_model: str,
        clock: Callable[[], float],
    ) -> None:
        """Start without a snapshot; the store need not be there yet.

        Args:
            config: How to pool.
            store: Where counts are kept.
            target_model: Whose counts.
            clock: Seconds since 1970.
        """
        self._config = config
        self._store = store
        self._target_model = target_model
        self._clock = clock
        self._availability = Availability("the store", logger, 0.1, 1.0)
        self._snapshot = EMPTY_SNAPSHOT
        self._epochs: Mapping[int, Mapping[CellKey, ArmCounts]] = {}
        self._num_statuses = {"applied": 0, "duplicate": 0, "gap": 0}

    async def sync(self, batches: Sequence[OutcomeBatch], known_version: int) -> SyncReply:
        """Apply a replica's batches and hand out the snapshot if the replica has another.

        Only what the store confirmed counts as applied. While the store is away it is asked at
        most once a second, and the reply says so at once.

        Raises:
            PolicyConfigError: If a batch is of another target model.
        """
        applied = await self._apply(batches)
        is_news = self._snapshot.version not in (0, known_version)
        snapshot = self._snapshot if is_news else None
        return SyncReply(applied, snapshot, store_away=not self._availability.is_up)

    async def publish(self) -> None:
        """Read the counts and make a new snapshot if they have changed; never fails."""
        now = self._clock()
        if not self._availability.may_try(now):
            return
        try:
            epochs = await self._store.read(self._target_model, now)
        except (StoreUnavailableError, StoreSchemaError) as error:
            self._availability.failed(self._clock(), describe(error))
            return
        self._availability.succeeded(self._clock())
        if epochs != self._epochs or self._snapshot.version == 0:
            self._epochs = epochs
            self._snapshot = self._make_snapshot(now)

    def dump(self) -> dict[str, Any]:
        """Return all counts, undecayed, by context, arm and drafter version; parents are sums."""
        contexts: dict[str, dict[str, dict[str, Any]]] = {}
        for key, counts in sorted(totals(self._epochs).items()):
            arm = f"{key.arm}@{key.drafter_version}" if key.drafter_version else key.arm
            mean = counts.reward(self._config.reward) / counts.pulls if counts.pulls else None
            contexts.setdefault(key.context, {})[arm] = {**asdict(counts), "mean_reward": mean}
        return {
            "target_model": self._target_model,
            "snapshot_version": self._snapshot.version,
            "contexts": contexts,
        }

    def status(self) -> dict[str, Any]:
        """Return how the store and the pool are."""
        return {
            "store_up": self._availability.is_up,
            "store_away_since": self._availability.away_since,
            "store_failures": self._availability.num_failures,
            "store_reason": self._availability.reason,
            "target_model": self._target_model,
            "snapshot_version": self._snapshot.version,
            "snapshot_created_at": self._snapshot.created_at,
            "cells": len(self._snapshot.cells),
            "epochs": len(self._epochs),
            "batches_applied": self._num_statuses["applied"],
            "batches_duplicate": self._num_statuses["duplicate"],
            "batches_refused": self._num_statuses["gap"],
        }

    async def close(self) -> None:
        """Release the store."""
        await self._store.close()

    async def _apply(self, batches: Sequence[OutcomeBatch]) -> int:
        """Apply batches in order as far as possible; return the highest sequence applied."""
        for batch in batches:
            if batch.target_model != self._target_model:
                raise PolicyConfigError(
                    f"batch for target model {batch.target_model!r}; "
                    f"this Policy pools those of {self._target_model!r}"
                )
        applied = 0
        started = self._clock()
        for batch in batches:
            now = self._clock()
            is_late = now - started > SYNC_BUDGET_S and applied > 0
            if is_late or not self._availability.may_try(now):
                break
            try:
                result = await self._store.apply(batch)
            except (StoreUnavailableError, StoreSchemaError) as error:
                self._availability.failed(self._clock(), describe(error))
                break
            self._availability.succeeded(self._clock())
            self._num_statuses[result.status] += 1
            applied = result.sequence
            if result.status == "gap":
                break
        return applied

    def _make_snapshot(self, now: float) -> Snapshot:
        """Pool the counts; versions grow across restarts because they start from the time."""
        cells = pooled_cells(
            self._epochs,
            now,
            epoch_s=self._config.epoch_s,
            half_life_s=self._config.half_life_s,
            max_contexts=self._config.max_contexts,
            reward_kind=self._config.reward,
        )
        version = max(self._snapshot.version + 1, int(now * 1000))
        return Snapshot(version, now, self._target_model, cells)
