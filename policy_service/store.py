"""Contract of the store that keeps counts: additive, exactly once, aged by epoch.

Implementations: ``memory_store`` (tests, and anything that need not survive its process) and
``redis_store`` (the real one). This module knows neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from policy_service.api import ArmCounts, CellKey, OutcomeBatch


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a batch.

    Attributes:
        sequence: Highest sequence of the batch's incarnation that the store has now.
        status: ``applied``; ``duplicate``: it was there already and nothing was changed; ``gap``:
            one before it is missing and nothing was changed.
    """

    sequence: int
    status: Literal["applied", "duplicate", "gap"]


class CounterStore(Protocol):
    """Keeps counts by target model, epoch and cell.

    Of each (target model, replica, incarnation) it keeps the highest sequence applied, the
    watermark, together with the counts, so that both are lost or kept together.
    """

    async def apply(self, batch: OutcomeBatch) -> Applied:
        """Add a batch's counts if and only if it is the next of its incarnation.

        All of it is added or nothing.

        Raises:
            StoreUnavailableError: If the store did not answer; whether the batch was applied is
                then unknown, and sending it again is safe.
            StoreSchemaError: If the store holds something else; nothing was written.
        """

    async def read(
        self, target_model: str, now: float
    ) -> Mapping[int, Mapping[CellKey, ArmCounts]]:
        """Return the counts of all epochs that have not expired, by start of the epoch.

        Two reads between which nothing changed compare equal.

        Raises:
            StoreUnavailableError: If the store did not answer.
            StoreSchemaError: If the store holds something else.
        """

    async def ping(self) -> None:
        """Check that the store answers.

        Raises:
            StoreUnavailableError: If it does not.
        """

    async def close(self) -> None:
        """Release connections; the store cannot be used afterwards."""
