from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import NONE, Arm
from policy_service.errors import PolicyConfigError
from policy_service.learners.lipschitz import LipschitzUcb, distances
from policy_service.loading import load_learner
from policy_service.statistics import ArmSums, SumsState

ARMS = (NONE, Arm("a", 2), Arm("a", 4), Arm("a", 8), Arm("b", 4))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_arms_without_pulls_are_bounded_by_what_they_can_draft() -> None:
    state = LipschitzUcb().initial_state(ARMS, {})
    arm, _, _, estimates = LipschitzUcb().select(state, ARMS, rng())
    assert dict(estimates) == {"none": 1, "a:2": 3, "a:4": 5, "a:8": 9, "b:4": 5}
    assert arm == ARMS[3]


def test_a_bound_on_one_length_bounds_its_neighbours() -> None:
    state = SumsState(8, {ARMS[2]: ArmSums(100, 150.0)})
    radius = 0.25 * 8 * math.sqrt(math.log(101) / 100)
    estimates = LipschitzUcb().select(state, ARMS, rng())[3]
    assert estimates["a:4"] == pytest.approx(1.5 + radius)
    assert estimates["a:8"] == pytest.approx(1.5 + radius + 4)
    assert estimates["a:2"] == 3, "its own limit is tighter than 1.9 + 2"
    assert estimates["b:4"] == 5, "another drafter's is not known by it"


def test_slope_and_scale() -> None:
    state = SumsState(8, {ARMS[2]: ArmSums(100, 50.0)})
    steep = LipschitzUcb(slope=0.5, scale=1).select(state, ARMS, rng())[3]
    assert steep["a:8"] - steep["a:4"] == pytest.approx(2.0)
    assert steep["a:4"] == pytest.approx(0.5 + 8 * math.sqrt(math.log(101) / 100))


def test_a_useless_drafter_is_given_up_after_few_pulls() -> None:
    """Sixteen lengths that all earn one token: the bounds of some speak for the others."""
    arms = (NONE, *(Arm("a", gamma) for gamma in range(1, 17)))
    learner = LipschitzUcb()
    state = learner.initial_state(arms, {})
    for _ in range(300):
        arm = learner.select(state, arms, rng())[0]
        state = learner.update(state, arm, 1.0)
    untried = [arm for arm, item in state.sums.items() if item.pulls == 0]
    assert len(untried) >= 3


@given(st.lists(st.sampled_from(ARMS), min_size=3, max_size=3))
def test_distances_are_a_metric(arms: list[Arm]) -> None:
    apart = distances(tuple(arms))
    assert np.array_equal(apart, apart.T)
    assert not apart.diagonal().any()
    assert apart[0, 2] <= apart[0, 1] + apart[1, 2]


@pytest.mark.parametrize("params", [{"slope": 0}, {"scale": -1}])
def test_bad_parameters(params: dict[str, object]) -> None:
    with pytest.raises(PolicyConfigError, match="must be a number"):
        load_learner("lipschitz", params)
