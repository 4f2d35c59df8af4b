"""Contract of the store that keeps counts: additive, exactly once, aged by epoch.

Implementations: ``memory_store`` (tests, and anything that need not survive its process) and
``redis_pool.store`` (the real one). This module knows neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from policy_service.api import ArmCounts, CellKey, OutcomeBatch


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a batch.

    Attributes:
        sequence: Highest sequence of the batch's incarnation that the store has now.
        status: ``applied``; ``duplicate``: it was there already and nothing was changed; ``gap``:
            one before it is missing and nothing was changed; ``stale``: taken note of but not
            counted, for it was gathered before the counters were reset; ``late``: likewise, for
            its epoch has expired.
    """

    sequence: int
    status: Literal["applied", "duplicate", "gap", "stale", "late"]


@dataclass(frozen=True, slots=True)
class Pool:
    """All counts of a target model.

    Attributes:
        generation: How often they were reset.
        epochs: Counts by start of the epoch. Between two reads an epoch that did not change is the
            same object, and one that did is another.
    """

    generation: int = 0
    epochs: Mapping[int, Mapping[CellKey, ArmCounts]] = field(default_factory=dict)


class CounterStore(Protocol):
    """Keeps counts by target model, epoch and cell.

    Of each (target model, replica, incarnation) it keeps the highest sequence applied, the
    watermark, together with the counts, so that both are lost or kept together. Every method raises
    ``StoreUnavailableError`` if the store did not answer (what it did is then unknown, and asking
    again is safe) and ``StoreSchemaError`` if it holds something else, and then writes nothing.
    """

    async def apply(self, batch: OutcomeBatch) -> Applied:
        """Add a batch's counts if and only if it is the next of its incarnation.

        All of it is added or nothing. A batch of a later generation than the store knows begins it.
        """

    async def read(self, target_model: str, now: float) -> Pool:
        """Return the counts of all epochs that have not expired."""

    async def measure(self, target_model: str) -> Mapping[int, int]:
        """Return the bytes of each epoch, as of the last read."""

    async def move(
        self, target_model: str, epoch: int, moves: Sequence[tuple[CellKey, CellKey]]
    ) -> None:
        """Add cells of an epoch to others and remove them."""

    async def drop(self, target_model: str, epoch: int) -> None:
        """Forget an epoch; batches that were in it stay applied."""

    async def reset(self, target_model: str, generation: int) -> int:
        """End a generation, its counts forgotten, and return the one that follows.

        If it had ended already nothing is changed.
        """

    async def ping(self) -> None:
        """Check that the store answers."""

    async def close(self) -> None:
        """Release connections; the store cannot be used afterwards."""
