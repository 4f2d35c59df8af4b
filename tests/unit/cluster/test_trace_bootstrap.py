"""The paired bootstrap of the policy benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.policy.bootstrap import paired_ratio


def names(count: int, copies: int = 1) -> list[str]:
    return [f"p{index}" for _ in range(copies) for index in range(count)]


def test_a_constant_ratio_has_no_width() -> None:
    below = np.random.default_rng(0).uniform(1, 100, 20)
    ratio = paired_ratio(names(20), 1.5 * below, below)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))


def test_copies_of_a_prompt_say_no_more_than_it_says_once() -> None:
    rng = np.random.default_rng(1)
    below = rng.uniform(1, 2, 12)
    above = below * rng.uniform(0.8, 1.4, 12)
    once = paired_ratio(names(12), above, below)
    often = paired_ratio(names(12, copies=10), np.tile(above, 10), np.tile(below, 10))
    assert often.high - often.low == pytest.approx(once.high - once.low)
    assert once.low < once.value < once.high


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for seed in range(150):
        below = rng.gamma(2.0, 1.0, 40)
        above = below * rng.lognormal(np.log(1.1) - 0.02, 0.2, 40)
        ratio = paired_ratio(names(40), above, below, seed)
        held += ratio.low <= 1.1 <= ratio.high
    assert 0.86 <= held / 150 <= 0.99
