from __future__ import annotations

import numpy as np
import pytest

from policy_service.api import NONE, Arm, ArmPrior
from policy_service.errors import PolicyConfigError
from policy_service.learners.thompson import ThompsonSampling, probability_of_highest
from policy_service.loading import load_learner
from policy_service.statistics import ArmSums, SumsState

A, B = Arm("a", 4), Arm("b", 8)
ARMS = (NONE, A, B)


def test_posterior_means_shrink_towards_the_middle_of_the_range() -> None:
    state = SumsState(8, {NONE: ArmSums(3, 3.0), A: ArmSums(9, 20.5)})
    estimates = ThompsonSampling().select(state, ARMS, np.random.default_rng(0))[3]
    assert estimates == pytest.approx({"none": 7.5 / 4, "a:4": 2.5, "b:8": 4.5})


def test_choices_spread_as_the_posteriors_do() -> None:
    """Two arms whose values differ by one standard deviation of the difference: 84 to 16."""
    top, learner = 9.0, ThompsonSampling(scale=0.25)
    state = SumsState(
        8, {A: ArmSums(99, 100 * 3.0 - top / 2), B: ArmSums(99, 100 * 3.318 - top / 2)}
    )
    rng = np.random.default_rng(1)
    chosen = [learner.select(state, (A, B), rng)[0] for _ in range(2000)]
    assert chosen.count(B) / 2000 == pytest.approx(0.8413, abs=0.03)
    propensities = {learner.select(state, (A, B), rng)[2] for _ in range(50)}
    assert sorted(propensities) == pytest.approx([0.1587, 0.8413], abs=0.002)


@pytest.mark.parametrize("seed", range(6))
def test_propensity_is_integrated_to_a_hundredth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    means, deviations = rng.uniform(0, 5, 7), rng.uniform(0.05, 2.0, 7)
    draws = means + deviations * rng.standard_normal((100_000, 7))
    measured = np.bincount(draws.argmax(axis=1), minlength=7) / 100_000
    computed = [probability_of_highest(index, means, deviations) for index in range(7)]
    assert computed == pytest.approx(measured, abs=0.01)
    assert sum(computed) == pytest.approx(1.0, abs=0.01)


def test_a_hopeless_arm_has_a_propensity_still() -> None:
    computed = probability_of_highest(0, np.array([0.0, 1e6]), np.array([1e-3, 1e-3]))
    assert 0 < computed < 1e-6


def test_the_past_fades_with_the_discount() -> None:
    state = SumsState(8, {A: ArmSums(10, 30.0), B: ArmSums(4, 4.0)})
    after = ThompsonSampling(discount=0.5).update(state, A, 2.0)
    assert after.sums == {A: ArmSums(6.0, 17.0), B: ArmSums(2.0, 2.0)}
    assert ThompsonSampling().update(state, A, 2.0).sums[A] == ArmSums(11, 32.0)


def test_priors_are_pulls() -> None:
    state = ThompsonSampling().initial_state(ARMS, {A: ArmPrior(20, 3.0)})
    assert state.sums[A] == ArmSums(20, 60.0)


@pytest.mark.parametrize("params", [{"scale": 0}, {"discount": 0}, {"discount": 1.1}])
def test_bad_parameters(params: dict[str, object]) -> None:
    with pytest.raises(PolicyConfigError, match="must be a number"):
        load_learner("thompson", params)
