from __future__ import annotations

import math

import numpy as np
import pytest

from policy_service.abilities import RoundContext
from policy_service.api import NONE, Arm, ArmPrior, Decision
from policy_service.errors import PolicyConfigError
from policy_service.full_information import reveals
from policy_service.learners.hedge import Hedge, observation_probabilities
from policy_service.loading import load_learner
from policy_service.losses import LossState, loss_of
from tests.learner_games import Game, Player

SHORT, LONG, OTHER = Arm("a", 2), Arm("a", 4), Arm("b", 4)
ARMS = (NONE, SHORT, LONG, OTHER)
REWARDS = {NONE: 1.0, SHORT: 2.5, LONG: 3.0, OTHER: 4.0}
LEARNER = Hedge()


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def drawn(state: LossState, arm: Arm) -> Decision:
    estimates = LEARNER.select(state, ARMS, rng())[3]
    return Decision(arm, "hedge", "drawn", estimates[str(arm)], 0, estimates)


def told(state: LossState, decision: Decision) -> LossState:
    known = {arm: reward for arm, reward in REWARDS.items() if reveals(decision.arm, arm)}
    return LEARNER.update_full(state, RoundContext(ARMS), decision, known)


def test_observation_probabilities() -> None:
    seen = observation_probabilities(ARMS, [0.1, 0.2, 0.3, 0.4])
    assert seen == pytest.approx([1.0, 0.5, 0.3, 0.4])


def test_a_round_teaches_its_prefixes_and_plain_decoding() -> None:
    state = LossState(4, 9, dict.fromkeys(ARMS, 0.0))
    after = told(state, drawn(state, LONG))
    assert {arm for arm in ARMS if after.losses[arm] < 0} == {SHORT, LONG}
    after = told(state, drawn(state, SHORT))
    assert {arm for arm in ARMS if after.losses[arm] < 0} == {SHORT}


def test_loss_estimates_are_unbiased_but_for_implicit_exploration() -> None:
    """In the mean an arm is charged ``o / (o + eta)`` of what it loses less than plain decoding."""
    state = LossState(4, 96, {NONE: 9.0, SHORT: 5.0, LONG: 4.0, OTHER: 3.0})
    chances = [drawn(state, arm).propensity for arm in ARMS]
    eta = math.sqrt(math.log(4) / (4 + 96))
    expected = dict.fromkeys(ARMS, 0.0)
    for arm, chance in zip(ARMS, chances, strict=True):
        after = told(state, drawn(state, arm))
        for other in ARMS:
            expected[other] += chance * (after.losses[other] - state.losses[other])
    for arm, seen in zip(ARMS, observation_probabilities(ARMS, chances), strict=True):
        lost = loss_of(REWARDS[arm], 4) - 1
        assert expected[arm] == pytest.approx(lost * seen / (seen + eta))


def test_with_all_arms_revealed_it_is_hedge() -> None:
    """One drafter, always its longest arm: what is estimated are the losses, nearly."""
    arms = (NONE, SHORT, LONG)
    state = LEARNER.initial_state(arms, {})
    told_by_longest = Decision(LONG, "hedge", "x", 1.0, 0, {"none": 0.0, "a:2": 0.0, "a:4": 1.0})
    rewards = {arm: REWARDS[arm] for arm in arms}
    after = LEARNER.update_full(state, RoundContext(arms), told_by_longest, rewards)
    eta = math.sqrt(math.log(3) / 3)
    for arm in arms:
        assert after.losses[arm] == pytest.approx((loss_of(rewards[arm], 4) - 1) / (1 + eta))
    assert after.rounds == pytest.approx(1 / (1 + eta))
    eta = LEARNER.rate * math.sqrt(math.log(3) / (3 + after.rounds))
    weights = [math.exp(-eta * after.losses[arm]) for arm in arms]
    estimates = LEARNER.select(after, arms, rng())[3]
    assert list(estimates.values()) == pytest.approx([one / sum(weights) for one in weights])


def test_feedback_may_come_late() -> None:
    """Rounds whose feedback is held back teach what they would have, but for the rate."""
    state = LossState(4, 996, {NONE: 9.0, SHORT: 5.0, LONG: 4.0, OTHER: 3.0})
    first, second = drawn(state, LONG), drawn(state, OTHER)
    in_order, reversed_order = told(told(state, first), second), told(told(state, second), first)
    for arm in ARMS:
        assert in_order.losses[arm] == pytest.approx(reversed_order.losses[arm], rel=1e-2)


def test_learns_lengths_faster_than_from_chosen_arms_only() -> None:
    """One drafter of eight lengths: what is played tells of the shorter ones, too."""
    arms = (NONE, *(Arm("a", gamma) for gamma in range(1, 9)))
    game = Game(arms, {"a": 0.2}, "time", token_ms=5.0)
    lost = {}
    for name in ("hedge", "exp3spec"):
        learner = load_learner(name, {})
        lost[name] = 0.0
        for seed in range(20):
            player = Player.start(learner, arms, seed)
            player.play(game, 150)
            for arm, count in player.pulls.items():
                lost[name] += count * (game.mean(game.best) - game.mean(arm))
    assert lost["hedge"] < 0.75 * lost["exp3spec"]


def test_priors_are_rounds_with_all_arms_revealed() -> None:
    state = LEARNER.initial_state(ARMS, {SHORT: ArmPrior(10, 3.0), NONE: ArmPrior(4, 1.0)})
    assert state.rounds == 10
    assert state.losses == {NONE: 10.0, SHORT: 5.0, LONG: 5.0, OTHER: 5.0}


def test_an_arm_that_was_away_is_neither_better_nor_worse_for_it() -> None:
    state = LossState(4, 9, {NONE: 6.0, LONG: 3.0})
    decision = Decision(LONG, "hedge", "pinned")
    after = LEARNER.update_full(state, RoundContext((LONG,)), decision, {LONG: 3.0})
    assert after.losses == {NONE: 5.5, LONG: 2.5}


def test_bad_parameters() -> None:
    with pytest.raises(PolicyConfigError, match="rate of learner 'hedge'"):
        load_learner("hedge", {"rate": "fast"})
