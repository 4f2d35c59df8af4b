"""A store in this process's memory, with the guarantees of the real one except survival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policy_service.api import ANY_GENERATION, ArmCounts, CellKey, OutcomeBatch
from policy_service.store import Applied, Pool

CELL_BYTES = 200
"""About what a cell takes."""


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
        self._generations: dict[str, int] = {}
        self._epochs: dict[str, dict[int, dict[CellKey, ArmCounts]]] = {}

    async def apply(self, batch: OutcomeBatch) -> Applied:
        """Add a batch's counts if and only if it is the next of its incarnation."""
        name = (batch.target_model, batch.replica, batch.incarnation)
        last = self._watermarks.get(name, 0)
        if batch.sequence <= last:
            return Applied(last, "duplicate")
        if batch.sequence > last + 1:
            return Applied(last, "gap")
        self._watermarks[name] = batch.sequence
        generation = self._generations.get(batch.target_model, 0)
        if batch.generation != ANY_GENERATION and batch.generation < generation:
            return Applied(batch.sequence, "stale")
        if batch.generation > generation:
            self._begin(batch.target_model, batch.generation)
        epochs = self._epochs.setdefault(batch.target_model, {})
        cells = dict(epochs.get(batch.epoch, {}))
        for key, counts in batch.deltas.items():
            cells[key] = cells.get(key, ArmCounts()) + counts
        epochs[batch.epoch] = cells
        return Applied(batch.sequence, "applied")

    async def read(self, target_model: str, now: float) -> Pool:
        """Return the counts of all epochs that have not expired."""
        epochs = self._epochs.get(target_model, {})
        for epoch in [epoch for epoch in epochs if epoch + self._lifetime_s <= now]:
            del epochs[epoch]
        return Pool(self._generations.get(target_model, 0), dict(epochs))

    async def measure(self, target_model: str) -> Mapping[int, int]:
        """Return the bytes of each epoch, roughly."""
        epochs = self._epochs.get(target_model, {})
        return {epoch: CELL_BYTES * len(cells) for epoch, cells in epochs.items()}

    async def move(
        self, target_model: str, epoch: int, moves: Sequence[tuple[CellKey, CellKey]]
    ) -> None:
        """Add cells of an epoch to others and remove them."""
        epochs = self._epochs.get(target_model, {})
        cells = dict(epochs.get(epoch, {}))
        for key, place in moves:
            if (counts := cells.pop(key, None)) is not None:
                cells[place] = cells.get(place, ArmCounts()) + counts
        if epoch in epochs:
            epochs[epoch] = cells

    async def drop(self, target_model: str, epoch: int) -> None:
        """Forget an epoch."""
        self._epochs.get(target_model, {}).pop(epoch, None)

    async def reset(self, target_model: str, generation: int) -> int:
        """End a generation and return the one that follows."""
        if self._generations.get(target_model, 0) == generation:
            self._begin(target_model, generation + 1)
        return self._generations[target_model]

    async def ping(self) -> None:
        """Do nothing: memory is always there."""

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _begin(self, target_model: str, generation: int) -> None:
        self._generations[target_model] = generation
        self._epochs.pop(target_model, None)
