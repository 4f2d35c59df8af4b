from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.abilities import RoundContext
from policy_service.api import NONE, Arm, ArmPrior, Decision
from policy_service.errors import PolicyConfigError
from policy_service.learners.robust import TsallisInf, leader
from policy_service.learners.ucbspec import UcbSpec
from policy_service.loading import load_learner
from policy_service.losses import LossState, loss_of
from tests.learner_games import Game, Player, outcome_of

A, B = Arm("a", 4), Arm("b", 4)
ARMS = (NONE, A, B)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=20),
    st.floats(1e-4, 100.0),
)
def test_leader_solves_its_equation(losses: list[float], eta: float) -> None:
    """All weights come from one x left of every loss, and they sum to 1."""
    least = min(losses)
    losses = [loss - least for loss in losses]
    weights = leader(losses, eta)
    assert sum(weights) == pytest.approx(1.0)
    x = -2 / (eta * max(weights) ** 0.5)
    assert weights == pytest.approx([4 / (eta * (loss - x)) ** 2 for loss in losses], rel=1e-4)


def test_loss_estimate_is_unbiased() -> None:
    learner, state = TsallisInf(), LossState(4, 99, {NONE: 60.0, A: 30.0, B: 31.0})
    rewards = {NONE: 1.0, A: 2.0, B: 4.0}
    rng = np.random.default_rng(0)
    estimates = learner.select(state, ARMS, rng)[3]
    expected = dict.fromkeys(ARMS, 0.0)
    for arm in ARMS:
        chance = estimates[str(arm)]
        told = Decision(arm, "robust", "drawn", chance, 0, estimates)
        after = learner.update_from(state, RoundContext(ARMS), told, rewards[arm])
        for other in ARMS:
            expected[other] += chance * (after.losses[other] - state.losses[other])
    assert expected == pytest.approx({arm: loss_of(rewards[arm], 4) for arm in ARMS})


def test_likely_arms_are_estimated_with_less_variance() -> None:
    """What is not drawn counts half a loss where it is likely, and nothing where it is not."""
    learner, state = TsallisInf(), LossState(4, 399, {NONE: 500.0, A: 0.0, B: 0.5})
    estimates = learner.select(state, ARMS, np.random.default_rng(0))[3]
    told = Decision(A, "robust", "drawn", estimates["a:4"], 0, estimates)
    after = learner.update_from(state, RoundContext(ARMS), told, 3.0)
    assert after.losses[NONE] == 500.0
    assert after.losses[B] == 1.0
    assert after.losses[A] == pytest.approx(0.5), "its loss is 1/2, as was assumed"


def test_a_round_without_a_choice_moves_nothing() -> None:
    learner, state = TsallisInf(), LossState(4, 9, {NONE: 6.0, A: 3.0})
    after = learner.update_from(state, RoundContext((NONE,)), Decision(NONE, "x", "off"), 1.0)
    assert after.losses == {NONE: 7.0, A: 4.0}


def play_corrupted(player: Player, corrupted: int, rounds: int) -> float:
    """Return the share of the best arm's pulls late in a game whose first rounds were falsified."""
    lawful = Game(ARMS, {"a": 0.85, "b": 0.3})
    context = RoundContext(ARMS)
    for _ in range(corrupted):
        decision = player.decide(context)
        accepted = 4 if decision.arm == B else 0
        player.learn(context, decision, outcome_of(decision.arm, accepted), "tokens")
    player.play(lawful, rounds)
    return sum(one.arm == A for one in player.history[-100:]) / 100


def test_recovers_from_falsified_rounds_where_a_bold_bound_does_not() -> None:
    corrupted, rounds = 25, 375
    robust, bold = [], []
    for seed in range(20):
        player = Player.start(TsallisInf(), ARMS, seed)
        robust.append(play_corrupted(player, corrupted, rounds))
        player = Player.start(UcbSpec(scale=0.02), ARMS, seed)
        bold.append(play_corrupted(player, corrupted, rounds))
    assert np.mean(robust) > 0.75
    assert np.mean(bold) < 0.5


def test_priors_are_rounds_already_played() -> None:
    state = TsallisInf().initial_state(ARMS, {A: ArmPrior(10, 3.0), NONE: ArmPrior(10, 1.0)})
    assert (state.rounds, dict(state.losses)) == (20, {NONE: 20.0, A: 10.0, B: 10.0})


def test_bad_parameters() -> None:
    with pytest.raises(PolicyConfigError, match="rate of learner 'robust'"):
        load_learner("robust", {"rate": 0})
