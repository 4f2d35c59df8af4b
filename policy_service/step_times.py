"""How long a Verifier's step takes, as its engine measured it. Pure; plain data that pickles."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


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
