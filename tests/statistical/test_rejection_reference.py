"""The reference rule itself: exact by enumeration, and its bugs are found by the joint test."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from tests.statistical.chi_square import SIGNIFICANT, p_value
from tests.statistical.markov import DRAFTER, LENGTH, TARGET, Row, joint_law
from tests.statistical.rejection import RejectionLoop, acceptance_rate, draw, emitted_law

NUM_GENERATIONS = 4000


def random_rows(rng: np.random.Generator, vocab: int) -> list[float]:
    row = rng.exponential(size=vocab) ** 2
    row[rng.random(vocab) < 0.3] = 0
    row[int(rng.integers(vocab))] += 0.1
    shares: list[float] = (row / row.sum()).tolist()
    return shares


def test_what_is_emitted_has_the_targets_law() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        vocab = int(rng.integers(2, 40))
        target, drafter = random_rows(rng, vocab), random_rows(rng, vocab)
        assert np.abs(np.array(emitted_law(target, drafter)) - target).max() < 1e-15


def test_a_drafter_like_the_target_is_always_right() -> None:
    row = TARGET[1]
    assert emitted_law(row, row) == pytest.approx(row, abs=1e-15)
    assert acceptance_rate(row, row) == pytest.approx(1)


def test_a_uniform_number_at_the_end_gives_a_token_that_may_come() -> None:
    assert draw([0.3, 0.7 - 1e-12, 0.0], 1 - 1e-13) == 1


def p_of(kind: type[RejectionLoop], gamma: int = 3) -> float:
    loop = kind(TARGET, DRAFTER, gamma, random.Random(5))
    return p_value((loop.generate() for _ in range(NUM_GENERATIONS)), LAW)


LAW = joint_law(TARGET, LENGTH, 1.0)


@pytest.mark.parametrize("gamma", [0, 1, 3])
def test_the_joint_law_of_four_tokens(gamma: int) -> None:
    assert p_of(RejectionLoop, gamma) > SIGNIFICANT


class RowOffByOne(RejectionLoop):
    def target_row(self, context: Sequence[int], index: int) -> Row:
        return self.target[context[max(0, index - 1)]]


class BonusFromWrongRow(RejectionLoop):
    def bonus_row(self, context: Sequence[int]) -> Row:
        return self.target[context[-2]]


class BonusFromDrafter(RejectionLoop):
    def bonus_row(self, context: Sequence[int]) -> Row:
        return self.drafter[context[-1]]


class OneUniformTwice(RejectionLoop):
    def second_uniform(self, uniform: float) -> float:
        return uniform


class ResampleFromTarget(RejectionLoop):
    def recovered_row(self, target: Row, drafter: Row) -> Row:
        return target


class AbsoluteResidual(RejectionLoop):
    def recovered_row(self, target: Row, drafter: Row) -> Row:
        excess = [abs(p - q) for p, q in zip(target, drafter, strict=True)]
        return [part / sum(excess) for part in excess] if sum(excess) else target


class InvertedRatio(RejectionLoop):
    def accepts(self, target: Row, drafter: Row, token: int, uniform: float) -> bool:
        return uniform < drafter[token] / target[token]


class ArgmaxAccept(RejectionLoop):
    def accepts(self, target: Row, drafter: Row, token: int, uniform: float) -> bool:
        return target[token] == max(target)


# Beside each bug: the p-value found.
@pytest.mark.parametrize(
    "bug",
    [
        RowOffByOne,  # < 1e-300
        BonusFromWrongRow,  # 5e-55
        BonusFromDrafter,  # 2e-27
        OneUniformTwice,  # 2e-62
        ResampleFromTarget,  # 4e-89
        AbsoluteResidual,  # 8e-240
        InvertedRatio,  # < 1e-300
        ArgmaxAccept,  # < 1e-300
    ],
)
def test_a_planted_bug_is_found(bug: type[RejectionLoop]) -> None:
    assert p_of(bug) < SIGNIFICANT
