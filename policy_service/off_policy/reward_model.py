"""A simple model of rounds for doubly robust estimates: means by arm and batch size. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from policy_service.api import Arm, Outcome


@dataclass(frozen=True, slots=True)
class Yield:
    """What a round is worth.

    Attributes:
        tokens: Tokens that it added to the reply.
        seconds: Its share of the Verifier's time: that of a step in which all sequences verified as
            much, divided by their number.
    """

    tokens: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Yield) -> Yield:
        return Yield(self.tokens + other.tokens, self.seconds + other.seconds)

    def __sub__(self, other: Yield) -> Yield:
        return Yield(self.tokens - other.tokens, self.seconds - other.seconds)

    def __mul__(self, factor: float) -> Yield:
        return Yield(self.tokens * factor, self.seconds * factor)


def yield_of(outcome: Outcome) -> Yield:
    """Return what a round was worth.

    The measured time of its step is taken only where the engine had no model of it: a step's
    sequences share it, so it says little about the arm of one of them.
    """
    step_ms = outcome.alike_ms or outcome.step_ms
    return Yield(float(outcome.num_emitted), step_ms / 1e3 / max(1, outcome.batch_size))


class MeanModel:
    """Means of rounds by arm and batch size, the latter in powers of two.

    Where there was no round of an arm at a batch size, the arm's mean over all is taken; where
    there was none of the arm, that of all rounds.
    """

    def __init__(self, rounds: Iterable[tuple[Arm, Outcome]]) -> None:
        sums: dict[tuple[Arm | None, int], tuple[int, Yield]] = defaultdict(lambda: (0, Yield()))
        for arm, outcome in rounds:
            worth = yield_of(outcome)
            for key in ((arm, _bucket(outcome.batch_size)), (arm, -1), (None, -1)):
                count, total = sums[key]
                sums[key] = count + 1, total + worth
        self._means = {key: total * (1 / count) for key, (count, total) in sums.items()}

    def predict(self, arm: Arm, batch_size: int) -> Yield:
        """Return what a round of an arm is worth on average."""
        for key in ((arm, _bucket(batch_size)), (arm, -1), (None, -1)):
            if key in self._means:
                return self._means[key]
        return Yield()


def _bucket(batch_size: int) -> int:
    """Return the power of two at or below a batch size."""
    return max(1, batch_size).bit_length()
