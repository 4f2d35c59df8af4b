"""A store in this process's memory, with the guarantees of the real one except survival."""

from __future__ import annotations

from collections.abc import Mapping

from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.store import Applied


class MemoryStore:
    """Keeps counts in dictionaries; watermarks never expire."""

    def __init__(self, epoch_s: int = 600, retention_s: int = 3 * 24 * 3600) -> None:
        """Make an empty store.

        Args:
            epoch_s: Length of an epoch.
            retention_s: Age, from its end, at which an epoch expires.
        """
        self._lifetime_s = epoch_s + retention_s
        self._watermarks: dict[tuple[str, str, str], int] = {}
        self._epochs: dict[str, dict[int, dict[CellKey, ArmCounts]]] = {}

    async def apply(self, batch: OutcomeBatch) -> Applied:
        """Add a batch's counts if and only if it is the next of its incarnation."""
        name = (batch.target_model, batch.replica, batch.incarnation)
        last = self._watermarks.get(name, 0)
        if batch.sequence <= last:
            return Applied(last, "duplicate")
        if batch.sequence > last + 1:
            return Applied(last, "gap")
        epochs = self._epochs.setdefault(batch.target_model, {})
        cells = dict(epochs.get(batch.epoch, {}))
        for key, counts in batch.deltas.items():
            cells[key] = cells.get(key, ArmCounts()) + counts
        epochs[batch.epoch] = cells
        self._watermarks[name] = batch.sequence
        return Applied(batch.sequence, "applied")

    async def read(
        self, target_model: str, now: float
    ) -> Mapping[int, Mapping[CellKey, ArmCounts]]:
        """Return the counts of all epochs that have not expired."""
        epochs = self._epochs.get(target_model, {})
        for epoch in [epoch for epoch in epochs if epoch + self._lifetime_s <= now]:
            del epochs[epoch]
        return dict(epochs)

    async def ping(self) -> None:
        """Do nothing: memory is always there."""

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""
