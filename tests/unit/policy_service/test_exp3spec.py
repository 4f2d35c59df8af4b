from __future__ import annotations

import math

import numpy as np
import pytest

from policy_service.abilities import RoundContext
from policy_service.api import NONE, Arm, ArmPrior, Decision
from policy_service.errors import PolicyConfigError
from policy_service.learners.exp3spec import Exp3Spec
from policy_service.loading import load_learner
from policy_service.losses import LossState, loss_of

A, B, C = Arm("a", 2), Arm("a", 4), Arm("b", 4)
ARMS = (NONE, A, B, C)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def decision(arm: Arm, propensity: float) -> Decision:
    return Decision(arm, "exp3spec", "drawn", propensity)


@pytest.mark.parametrize(("tokens", "loss"), [(1, 1.0), (5, 0.0), (3, 0.5)])
def test_loss_is_the_papers(tokens: float, loss: float) -> None:
    assert loss_of(tokens, length=4) == loss


def test_worse_than_plain_decoding_is_a_greater_loss() -> None:
    assert loss_of(0.5, length=4) == pytest.approx(1.125)


def test_first_round_is_uniform() -> None:
    state = Exp3Spec().initial_state(ARMS, {})
    _, reason, propensity, estimates = Exp3Spec().select(state, ARMS, rng())
    assert (reason, propensity) == ("drawn by past losses", 0.25)
    assert list(estimates.values()) == [0.25] * 4


def test_distribution_is_the_papers() -> None:
    """No mixing: exactly exp(-eta_t * losses), eta_t = sqrt(ln K / (t K)), t the round to come."""
    losses = {NONE: 6.0, A: 3.0, B: 1.0, C: 9.5}
    state = LossState(4, 19, losses)
    eta = math.sqrt(math.log(4) / (20 * 4))
    weights = {arm: math.exp(-eta * loss) for arm, loss in losses.items()}
    estimates = Exp3Spec().select(state, ARMS, rng())[3]
    for arm, weight in weights.items():
        assert estimates[str(arm)] == pytest.approx(weight / sum(weights.values()))


def test_loss_estimate_is_unbiased() -> None:
    """Each arm drawn with its probability and charged loss / probability: in the mean, the loss."""
    learner, state = Exp3Spec(), LossState(4, 9, {NONE: 6.0, A: 3.0, B: 1.0, C: 2.0})
    rewards = {NONE: 1.0, A: 2.0, B: 4.0, C: 3.0}
    chances = dict(zip(ARMS, learner.select(state, ARMS, rng())[3].values(), strict=True))
    expected = dict.fromkeys(ARMS, 0.0)
    for arm, chance in chances.items():
        after = learner.update_from(state, RoundContext(ARMS), decision(arm, chance), rewards[arm])
        for other in ARMS:
            expected[other] += chance * (after.losses[other] - state.losses[other])
    assert expected == pytest.approx({arm: loss_of(rewards[arm], 4) for arm in ARMS})


def test_update_without_a_decision_takes_all_arms_as_allowed() -> None:
    learner, state = Exp3Spec(), LossState(4, 9, {NONE: 6.0, A: 3.0})
    chance = learner.select(state, (NONE, A), rng())[3][str(A)]
    told = learner.update_from(state, RoundContext((NONE, A)), decision(A, chance), 2.0)
    assert learner.update(state, A, 2.0) == told


def test_an_arm_that_was_away_is_neither_better_nor_worse_for_it() -> None:
    learner, state = Exp3Spec(), LossState(4, 9, {NONE: 6.0, A: 3.0})
    after = learner.update_from(state, RoundContext((NONE,)), decision(NONE, 1.0), 1.0)
    assert after.losses == {NONE: 7.0, A: 4.0}


def test_a_new_arm_starts_where_the_best_is() -> None:
    learner, state = Exp3Spec(), LossState(4, 9, {NONE: 6.0, A: 3.0})
    estimates = learner.select(state, (NONE, A, C), rng())[3]
    assert estimates[str(C)] == estimates[str(A)] > estimates["none"]
    after = learner.update_from(state, RoundContext((NONE, A, C)), decision(C, 0.5), 5.0)
    assert after.losses[C] == 3.0


def test_priors_are_rounds_already_played() -> None:
    state = Exp3Spec().initial_state(ARMS, {NONE: ArmPrior(10, 1.0), B: ArmPrior(10, 3.0)})
    assert state.rounds == 20
    assert state.losses == {NONE: 20.0, A: 10.0, B: 10.0, C: 10.0}


def test_length_and_rate_are_parameters() -> None:
    assert Exp3Spec(L=8).initial_state(ARMS, {}).length == 8
    assert Exp3Spec().initial_state(ARMS, {}).length == 4
    state = LossState(4, 3, {NONE: 2.0, A: 0.0})
    faster = Exp3Spec(rate=2).select(state, (NONE, A), rng())[3]
    plain = Exp3Spec().select(state, (NONE, A), rng())[3]
    odds = [math.log(one["a:2"] / one["none"]) for one in (faster, plain)]
    assert odds[0] == pytest.approx(2 * odds[1])


def test_losses_far_apart_do_not_break_the_draw() -> None:
    state = LossState(4, 0, {NONE: 1e9, A: 0.0, B: 1e9, C: 1e9})
    arm, _, propensity, estimates = Exp3Spec().select(state, ARMS, rng())
    assert (arm, propensity) == (A, 1.0)
    assert estimates["none"] == 0.0


@pytest.mark.parametrize("params", [{"L": 0}, {"L": "x"}, {"rate": 0}, {"rate": float("nan")}])
def test_bad_parameters(params: dict[str, object]) -> None:
    with pytest.raises(PolicyConfigError, match="must be a number"):
        load_learner("exp3spec", params)
