"""The classical rule of speculative sampling, as a reference. The product does not use it.

A drafted token is kept with probability ``min(1, target / drafter)``. Where one is not, the next
token comes from what the target has more of than the drafter; where all are, from the target
(Leviathan, Kalman and Matias 2023, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.statistical.markov import FIRST, LENGTH, Row, Table


def acceptance(target: Row, drafter: Row, token: int) -> float:
    """Return the probability that a drafted token is kept."""
    return min(1.0, target[token] / drafter[token])


def residual(target: Row, drafter: Row) -> Row:
    """Return the law of the token that follows a rejection.

    Where target and drafter are the same nothing is ever rejected, but for rounding; then the
    target's own row is as good.
    """
    excess = [max(0.0, p - q) for p, q in zip(target, drafter, strict=True)]
    total = sum(excess)
    return [part / total for part in excess] if total > 0 else target


def acceptance_rate(target: Row, drafter: Row) -> float:
    """Return the probability that a token drawn by the drafter is kept: 1 less total variation."""
    return sum(min(p, q) for p, q in zip(target, drafter, strict=True))


def emitted_law(target: Row, drafter: Row) -> Row:
    """Return the law of the first token that the rule emits, drafts and rejections summed up."""
    kept = [q * acceptance(target, drafter, token) if q else 0.0 for token, q in enumerate(drafter)]
    rejected = 1 - sum(kept)
    rest = residual(target, drafter)
    return [part + rejected * other for part, other in zip(kept, rest, strict=True)]


def draw(row: Row, uniform: float) -> int:
    """Return the token at which the summed up row passes a uniform number."""
    passed = 0.0
    last = 0
    for token, probability in enumerate(row):
        if probability:
            last = token
            passed += probability
            if uniform < passed:
                return token
    return last  # rounding took the sum's end below the uniform number


class RejectionLoop:
    """Generates with the rule; whatever a bug could get wrong is a method of its own.

    Args:
        target: The target's table.
        drafter: The drafter's.
        gamma: Tokens of a draft.
        rng: Draws.
    """

    def __init__(self, target: Table, drafter: Table, gamma: int, rng: random.Random) -> None:
        self.target = target
        self.drafter = drafter
        self.gamma = gamma
        self.rng = rng

    def generate(self) -> tuple[int, ...]:
        """Return the first tokens of a text."""
        text: list[int] = []
        while len(text) < LENGTH:
            text += self.round(text[-1] if text else FIRST)
        return tuple(text[:LENGTH])

    def round(self, last: int) -> list[int]:
        """Draft, verify, and return what is emitted after a token."""
        draft: list[int] = []
        for _ in range(self.gamma):
            row = self.drafter[draft[-1] if draft else last]
            draft.append(draw(row, self.rng.random()))
        context = [last, *draft]
        for index, token in enumerate(draft):
            target, drafter = self.target_row(context, index), self.drafter[context[index]]
            uniform = self.rng.random()
            if not self.accepts(target, drafter, token, uniform):
                recovered = self.recovered_row(target, drafter)
                return [*draft[:index], draw(recovered, self.second_uniform(uniform))]
        return [*draft, draw(self.bonus_row(context), self.rng.random())]

    def target_row(self, context: Sequence[int], index: int) -> Row:
        """Return the target's row that judges draft token ``index``; ``context[index]`` is last."""
        return self.target[context[index]]

    def accepts(self, target: Row, drafter: Row, token: int, uniform: float) -> bool:
        """Return whether a drafted token is kept."""
        return uniform < acceptance(target, drafter, token)

    def recovered_row(self, target: Row, drafter: Row) -> Row:
        """Return the law of the token that follows a rejection."""
        return residual(target, drafter)

    def second_uniform(self, uniform: float) -> float:
        """Return what the recovered token is drawn with, after ``uniform`` rejected."""
        return self.rng.random()

    def bonus_row(self, context: Sequence[int]) -> Row:
        """Return the law of the token after a draft that was kept as a whole."""
        return self.target[context[-1]]
