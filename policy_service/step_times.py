"""How long a Verifier's step takes, as its engine measured it. Pure; plain data that pickles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

TimeOf = Callable[[NDArray[Any]], NDArray[np.float64]]
"""Milliseconds of a step by the number of drafted rows that it verifies."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A table over rows, and what each sequence and each cached token adds.

    Attributes:
        rows: Row counts of the table, ascending.
        ms: Milliseconds of a step of so many rows, of one sequence with nothing cached; never
            falling.
        sequence_ms: What each further sequence adds.
        cached_token_ms: What each cached token adds, over all sequences.
    """

    rows: tuple[int, ...]
    ms: tuple[float, ...]
    sequence_ms: float = 0.0
    cached_token_ms: float = 0.0

    def __post_init__(self) -> None:
        if not self.rows or len(self.rows) != len(self.ms) or min(self.ms) <= 0:
            raise ValueError(f"expected a positive time for each of rows {self.rows}: {self.ms}")

    def predict_ms(self, rows: int, sequences: int = 1, cached: int = 0) -> float:
        """Return the time of a step.

        Between entries the table is read linearly; beyond its last it goes on in proportion.

        Args:
            rows: Tokens that it computes.
            sequences: Sequences that they belong to.
            cached: Tokens of those sequences that are in the cache.
        """
        added = self.sequence_ms * max(0, sequences - 1) + self.cached_token_ms * cached
        return self.table_ms(rows) + added

    def table_ms(self, rows: int) -> float:
        """Return the table's part of ``predict_ms``."""
        right = bisect_left(self.rows, rows)
        if right == len(self.rows):
            return self.ms[-1] * rows / self.rows[-1]
        if right == 0:
            return self.ms[0]
        low, high = self.rows[right - 1], self.rows[right]
        share = (rows - low) / (high - low)
        return self.ms[right - 1] + share * (self.ms[right] - self.ms[right - 1])

    def predict_many_ms(
        self, rows: NDArray[Any], sequences: int = 1, cached: int = 0
    ) -> NDArray[np.float64]:
        """Return the times of steps of so many rows each, which may be fractions.

        The same as ``predict_ms`` of each.
        """
        added = self.sequence_ms * max(0, sequences - 1) + self.cached_token_ms * cached
        times: NDArray[np.float64] = np.interp(rows, *_points(self.rows, self.ms)) + added
        return times


@lru_cache(maxsize=8)
def _points(
    rows: tuple[int, ...], ms: tuple[float, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a table as arrays, with one more entry so far off that all rows lie before it."""
    return np.array([*rows, rows[-1] * 1e6]), np.array([*ms, ms[-1] * 1e6])


UNKNOWN = StepTimes((1, 64), (10.0, 20.0))
"""What steps are taken to cost where nobody says: a forward of few rows mostly reads weights."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step has to do beside the drafts that are still to be chosen.

    Attributes:
        batch_size: Sequences that decode.
        times: How long steps take; None if nobody said.
        other_rows: Drafted tokens that are verified in any case.
        cached: Tokens of the sequences that are in the cache.
        prefill_rows: Tokens of prompts that are computed besides.
    """

    batch_size: int
    times: StepTimes | None = None
    other_rows: int = 0
    cached: int = 0
    prefill_rows: int = 0

    def time_of(self, drafted: NDArray[Any]) -> NDArray[np.float64]:
        """Return the step's milliseconds with so many drafted rows more, without those of prompts.

        What prompts take does not depend on drafts and is not for them to make up for; but rows
        cost what they cost on top of the prompts'.
        """
        times = self.times or UNKNOWN
        rows = self.batch_size + self.other_rows
        total = times.predict_many_ms(
            drafted + (rows + self.prefill_rows), self.batch_size, self.cached
        )
        if not self.prefill_rows:
            return total
        prompts_ms = times.table_ms(rows + self.prefill_rows) - times.table_ms(rows)
        return total - prompts_ms
