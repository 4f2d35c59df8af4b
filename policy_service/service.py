"""What the Policy does: applies batches, publishes snapshots, says how it is. Knows no Ray.

Not safe for use from several threads; calls may overlap on one event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from policy_service.api import EMPTY_SNAPSHOT, OutcomeBatch, Snapshot, SyncReply
from policy_service.availability import Availability, describe
from policy_service.compaction import next_step
from policy_service.config import PolicyConfig
from policy_service.dump import dump
from policy_service.errors import PolicyConfigError, StoreSchemaError, StoreUnavailableError
from policy_service.pooling import Pooling
from policy_service.store import CounterStore, Pool

logger = logging.getLogger(__name__)

MEASURE_PERIOD_S = 10.0
"""How often the store is asked how much room the counts take."""
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
        self._pool = Pool()
        self._pooling = Pooling(config)
        self._num_statuses = dict.fromkeys(("applied", "duplicate", "gap", "stale", "late"), 0)
        self._measured_at = float("-inf")
        self._store_bytes = 0
        self._num_compacted = 0
        self._num_dropped = 0

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
            pool = await self._store.read(self._target_model, now)
            await self._keep_within_bounds(pool, now)
        except (StoreUnavailableError, StoreSchemaError) as error:
            self._availability.failed(self._clock(), describe(error))
            return
        self._availability.succeeded(self._clock())
        if not _is_same(pool, self._pool) or self._snapshot.version == 0:
            self._pool = pool
            self._snapshot = self._make_snapshot(now)

    def dump(self) -> dict[str, Any]:
        """Return all counts, undecayed, by context, arm and drafter version; parents are sums."""
        return {
            "target_model": self._target_model,
            "snapshot_version": self._snapshot.version,
            **dump(self._pool, self._clock(), self._config.epoch_s, self._config.reward),
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
            "generation": self._pool.generation,
            "epochs": len(self._pool.epochs),
            "store_cells": sum(map(len, self._pool.epochs.values())),
            "store_bytes": self._store_bytes,
            "store_max_bytes": self._config.max_store_bytes,
            "epochs_compacted": self._num_compacted,
            "epochs_dropped": self._num_dropped,
            "batches_applied": self._num_statuses["applied"],
            "batches_duplicate": self._num_statuses["duplicate"],
            "batches_refused": self._num_statuses["gap"],
            "batches_stale": self._num_statuses["stale"] + self._num_statuses["late"],
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

    async def _keep_within_bounds(self, pool: Pool, now: float) -> None:
        """Take one step towards the bound on the store's size, if the counts are above it."""
        is_time = not self._measured_at <= now < self._measured_at + MEASURE_PERIOD_S
        if not is_time and self._store_bytes <= self._config.max_store_bytes:
            return
        num_bytes = await self._store.measure(self._target_model)
        self._measured_at, self._store_bytes = now, sum(num_bytes.values())
        step = next_step(pool.epochs, num_bytes, self._config.max_store_bytes)
        if step is None:
            return
        if step.moves:
            await self._store.move(self._target_model, step.epoch, step.moves)
            self._num_compacted += 1
        else:
            await self._store.drop(self._target_model, step.epoch)
            self._num_dropped += 1
        logger.warning(
            "counts take %d bytes of %d: %s epoch %d",
            self._store_bytes,
            self._config.max_store_bytes,
            "wider contexts for" if step.moves else "dropped",
            step.epoch,
        )

    def _make_snapshot(self, now: float) -> Snapshot:
        """Pool the counts; versions grow across restarts because they start from the time."""
        cells = self._pooling.pool(self._pool.epochs, now)
        version = max(self._snapshot.version + 1, int(now * 1000))
        return Snapshot(version, now, self._target_model, cells, self._pool.generation)


def _is_same(pool: Pool, other: Pool) -> bool:
    """Whether nothing changed from one read to another."""
    return (
        pool.generation == other.generation
        and pool.epochs.keys() == other.epochs.keys()
        and all(cells is other.epochs[epoch] for epoch, cells in pool.epochs.items())
    )
