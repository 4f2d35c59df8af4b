from __future__ import annotations

import math

import numpy as np
import pytest

from policy_service.api import NONE, Arm, ArmPrior
from policy_service.errors import PolicyConfigError
from policy_service.learners.ucbspec import UcbSpec, confidence_radius
from policy_service.loading import load_learner
from policy_service.statistics import ArmSums, SumsState

A, B, C = Arm("a", 2), Arm("a", 4), Arm("b", 8)
ARMS = (NONE, A, B, C)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("length", "arms", "total", "pulls", "radius"),
    [
        (4, 4, 20, 5, 4.3),
        (4, 4, 100, 20, 2.4),
        (4, 4, 300, 200, 0.82),
        (8, 5, 20, 5, 8.6),
        (8, 5, 100, 20, 4.8),
        (8, 5, 300, 200, 1.65),
    ],
)
def test_radius_agrees_with_published_values(
    length: int, arms: int, total: int, pulls: int, radius: float
) -> None:
    got = confidence_radius(pulls, total, arms, length, delta=0.5)
    assert got == pytest.approx(radius, rel=0.02)


def test_pulls_each_arm_once_in_order() -> None:
    learner = UcbSpec()
    state = learner.initial_state(ARMS, {})
    order = []
    for _ in ARMS:
        arm, reason, propensity, _ = learner.select(state, ARMS, rng())
        assert (reason, propensity) == ("first pull", 1.0)
        order.append(arm)
        state = learner.update(state, arm, 1)
    assert tuple(order) == ARMS
    assert learner.select(state, ARMS, rng())[1] == "highest bound"


def test_index_is_the_papers() -> None:
    sums = {NONE: ArmSums(3, 3), A: ArmSums(5, 12), B: ArmSums(2, 7), C: ArmSums(10, 25)}
    state = SumsState(8, sums)
    arm, _, _, estimates = UcbSpec().select(state, ARMS, rng())

    def bound(n: float, mean: float) -> float:
        log = math.log(4 * 20**2 * math.sqrt(1 + n) / 0.5)
        return mean + 8 / 2 * math.sqrt((1 + n) / n**2 * (1 + 2 * log))

    for candidate, item in sums.items():
        expected = bound(item.pulls, item.reward / item.pulls)
        assert estimates[str(candidate)] == pytest.approx(expected)
    assert arm == max(sums, key=lambda item: estimates[str(item)])


def test_only_allowed_arms_count() -> None:
    sums = {NONE: ArmSums(300, 300), A: ArmSums(5, 12), B: ArmSums(2, 7)}
    whole = UcbSpec().select(SumsState(8, sums), (A, B), rng())
    alone = UcbSpec().select(SumsState(8, {A: sums[A], B: sums[B]}), (A, B), rng())
    assert whole == alone


def test_prior_replaces_the_first_pull() -> None:
    learner = UcbSpec()
    state = learner.initial_state(ARMS, {NONE: ArmPrior(20, 1.0), B: ArmPrior(0.5, 3.0)})
    assert state.sums[B] == ArmSums(0.5, 1.5)
    first, reason, _, _ = learner.select(state, ARMS, rng())
    assert (first, reason) == (A, "first pull")
    assert learner.select(state, (NONE, B), rng())[1] == "highest bound"


def test_a_weak_prior_has_a_bound() -> None:
    """With less than one pull in all, the logarithm of the paper's radius would be negative."""
    state = UcbSpec().initial_state((NONE,), {NONE: ArmPrior(1e-6, 1.0)})
    estimates = UcbSpec().select(state, (NONE,), rng())[3]
    assert math.isfinite(estimates["none"])


def test_mean_of_zero_is_not_untried() -> None:
    state = SumsState(2, {NONE: ArmSums(1, 0.0), A: ArmSums(1, 0.0)})
    assert UcbSpec().select(state, (NONE, A), rng())[1] == "highest bound"


def test_ties_are_drawn_uniformly() -> None:
    state = SumsState(4, {arm: ArmSums(2, 4) for arm in ARMS})
    generator = rng()
    arms = [UcbSpec().select(state, ARMS, generator)[0] for _ in range(2000)]
    for arm in ARMS:
        assert arms.count(arm) == pytest.approx(500, abs=90)
    assert UcbSpec().select(state, ARMS, generator)[2] == 0.25


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"delta": 0}, "delta"),
        ({"delta": 1.5}, "delta"),
        ({"delta": "x"}, "delta"),
        ({"delta": float("nan")}, "delta"),
        ({"L": 0}, "L of"),
        ({"scale": -1}, "scale"),
        ({"scale": True}, "scale"),
        ({"sclae": 1}, "did you mean 'scale'"),
    ],
)
def test_bad_parameters(params: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyConfigError, match=message):
        load_learner("ucbspec", params)


def test_scale_and_length_act_on_the_radius() -> None:
    state = SumsState(4, {NONE: ArmSums(4, 4)})
    plain = UcbSpec().select(state, (NONE,), rng())[3]["none"] - 1
    halved = UcbSpec(scale=0.5).select(state, (NONE,), rng())[3]["none"] - 1
    longer = UcbSpec(L=8).select(state, (NONE,), rng())[3]["none"] - 1
    assert halved == pytest.approx(plain / 2)
    assert longer == pytest.approx(plain * 2)
