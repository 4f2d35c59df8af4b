from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.regret import (
    exp3spec_bound,
    pull_regret,
    stopping_time,
    stopping_time_regret,
    ucbspec_bound,
)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=50), st.data())
def test_stopping_time_is_the_first_round_that_completes_the_reply(
    tokens: list[int], data: st.DataObject
) -> None:
    length = data.draw(st.integers(1, sum(tokens)))
    rounds = stopping_time(np.array(tokens, dtype=np.float64), length)
    assert sum(tokens[: rounds - 1]) < length <= sum(tokens[:rounds])


def test_the_best_arm_is_one_arm_for_all_runs() -> None:
    """Each arm is the better one in one run; played throughout, both need 6 rounds on average."""
    fixed = np.array([[4.0, 8.0], [8.0, 4.0]])
    assert stopping_time_regret(np.array([7.0, 9.0]), fixed) == 2.0


def test_pulls_of_worse_arms_cost_their_share_of_a_round() -> None:
    assert pull_regret([100, 3, 5], [5.0, 4.0, 1.0]) == pytest.approx(3 / 5 + 5 * 4 / 5)


def test_bounds_are_the_papers() -> None:
    """Two arms, gap 2: equation 42 and Theorem 5.3, written out."""
    log = math.log(4 * 2 * 100**2 / (2 * 0.5))
    pulls = 4 + 2 * 4**2 / 2**2 * (1 + 2 * log)
    expected = 2 / 3 * pulls + math.pi**2 * 0.5 / 6 + 2
    assert ucbspec_bound([3.0, 1.0], 100, 4, delta=0.5) == pytest.approx(expected)
    spread = 2 * math.log(2)
    by_length = 2 * 4 * math.sqrt(100 * spread)
    assert exp3spec_bound(100, 4, 2, 34) == pytest.approx(by_length)
    by_rounds = 2 * 4 * (2 * 4 * spread + math.sqrt(34 * spread))
    assert exp3spec_bound(1e6, 4, 2, 34) == pytest.approx(by_rounds)
