from __future__ import annotations

import math

import numpy as np
import pytest

from policy_service.api import Arm, ArmPrior
from policy_service.learners.greedy_released import GreedyReleased
from policy_service.statistics import ArmSums, SumsState

ARMS = tuple(Arm("a", gamma) for gamma in (1, 2, 3, 4))
LEARNER = GreedyReleased()


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_seven_forced_rounds_of_four_arms_the_last_only_once() -> None:
    state = LEARNER.initial_state(ARMS, {})
    forced = []
    for _ in range(7):
        arm, reason, _, _ = LEARNER.select(state, ARMS, rng())
        assert reason == "forced round"
        forced.append(arm.gamma)
        state = LEARNER.update(state, arm, 1.0)
    assert forced == [1, 2, 3, 4, 1, 2, 3]
    assert LEARNER.select(state, ARMS, rng())[1] == "highest mean"


def test_the_bonus_is_the_same_for_all_so_an_unlucky_arm_is_never_played_again() -> None:
    """The last arm is the best and had one bad round: UCB would return to it, this does not."""
    state = LEARNER.initial_state(ARMS, {})
    for arm, earned in zip((*ARMS, *ARMS[:3]), (1, 2, 1, 1, 1, 2, 1), strict=True):
        state = LEARNER.update(state, arm, earned)
    for _ in range(1000):
        arm, _, _, estimates = LEARNER.select(state, ARMS, rng())
        assert arm.gamma == 2
        state = LEARNER.update(state, arm, 2.0)
    bonus = math.sqrt(6 * math.log(1007) / 1006)
    assert estimates["a:4"] == pytest.approx(1.0 + bonus)
    assert estimates["a:2"] == pytest.approx(2.0 + bonus)


def test_equals_go_to_the_first() -> None:
    state = SumsState(4, dict.fromkeys(ARMS, ArmSums(2, 4.0)))
    for seed in range(5):
        assert LEARNER.select(state, ARMS, np.random.default_rng(seed))[0] == ARMS[0]


def test_priors_are_not_used() -> None:
    with_prior = LEARNER.initial_state(ARMS, {ARMS[3]: ArmPrior(20, 5.0)})
    assert with_prior == LEARNER.initial_state(ARMS, {})


def test_an_arm_that_appears_is_played_once() -> None:
    state = SumsState(4, dict.fromkeys(ARMS, ArmSums(5, 10.0)))
    arm, reason, _, _ = LEARNER.select(state, (*ARMS, Arm("b", 2)), rng())
    assert (str(arm), reason) == ("b:2", "first pull")
