"""The guard: whether drafting really pays, by what steps took and emitted.

Whatever the estimates say, some steps decode plainly, by a coin. Tokens per millisecond of plain
steps and of others are compared by batch size, each as a ratio of discounted sums with its standard
error (delta method). While drafting is worse by more than the errors allow, steps decode plainly
but for a trial now and then, by which it may win back its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policy_service.goodput.batches import batch_bucket

_FADE = 0.98
_AGE = 0.997
"""What steps of one kind weigh after one of the other kind."""
_FEWEST = 4.0
"""Steps of a kind, after fading, below which nothing is said of it."""
_DRAFT_FEWEST = 16.0


@dataclass(slots=True)
class RateSums:
    """Discounted sums over steps of one kind.

    Attributes:
        sums: Of 1, tokens, milliseconds, tokens squared, milliseconds squared, and their product.
    """

    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(6))

    @property
    def steps(self) -> float:
        """How many steps they are, faded."""
        return float(self.sums[0])

    def add(self, tokens: float, ms: float) -> None:
        """Count a step."""
        self.sums *= _FADE
        self.sums += (1.0, tokens, ms, tokens * tokens, ms * ms, tokens * ms)

    def interval(self, num_errors: float) -> tuple[float, float]:
        """Return bounds on tokens per millisecond, so many standard errors off the ratio."""
        _, tokens, ms, tokens_square, ms_square, product = self.sums.tolist()
        rate = tokens / ms
        square = tokens_square - 2 * rate * product + rate**2 * ms_square
        error = math.sqrt(max(0.0, square)) / ms
        return rate - num_errors * error, rate + num_errors * error


@dataclass(slots=True)
class _Kinds:
    plain: RateSums = field(default_factory=RateSums)
    drafting: RateSums = field(default_factory=RateSums)


class Guard:
    """Compares plain with drafting steps of one Verifier."""

    def __init__(self, share: float, trial_share: float, num_errors: float) -> None:
        """Start without having seen any step.

        Args:
            share: Share of steps that decode plainly for comparison; an eighth of it where
                drafting is surely better.
            trial_share: Share of steps that may draft while drafting is worse.
            num_errors: Standard errors on both sides that make sure.
        """
        self._share = share
        self._trial_share = trial_share
        self._num_errors = num_errors
        self._kinds: dict[int, _Kinds] = {}

    def observe(self, batch_size: int, is_plain: bool, tokens: float, ms: float) -> None:
        """Count a step; ``is_plain``: nobody was asked for a draft."""
        if ms <= 0.0:
            return
        kinds = self._kinds.setdefault(batch_bucket(batch_size), _Kinds())
        # Per sequence, for batch sizes of one bucket differ.
        kind, other = kinds.plain, kinds.drafting
        if not is_plain:
            kind, other = other, kind
        kind.add(tokens / batch_size, ms)
        other.sums *= _AGE

    def verdict(self, batch_size: int) -> int:
        """Return 1 where drafting is surely better, -1 where it is surely worse, else 0."""
        kinds = self._kinds.get(batch_bucket(batch_size))
        if kinds is None or kinds.plain.steps < _FEWEST or kinds.drafting.steps < _DRAFT_FEWEST:
            return 0
        plain_low, plain_high = kinds.plain.interval(self._num_errors)
        low, high = kinds.drafting.interval(self._num_errors)
        return int(low > plain_high) - int(high < plain_low)

    def plain_chance(self, batch_size: int) -> float:
        """Return with what probability the next step must decode plainly."""
        verdict = self.verdict(batch_size)
        if verdict < 0:
            return 1.0 - self._trial_share
        return self._share / 8 if verdict > 0 else self._share
