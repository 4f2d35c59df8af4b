"""What every file in ``policy_service/learners`` must hold; less of it, if it learns nothing."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_service.abilities import RoundContext, choose, kept
from policy_service.api import NONE, Arm, ArmPrior, Learner, RequestFeatures, RewardKind
from policy_service.errors import PolicyConfigError
from policy_service.loading import learner_names, load_learner
from tests.learner_games import Game, Player, outcome_of

ARMS = (NONE, Arm("lookup", 2), Arm("lookup", 4), Arm("lookup", 8))
LATE_ARM = Arm("rest", 4)
PRIORS = {NONE: ArmPrior(20.0, 1.0), ARMS[2]: ArmPrior(0.25, 2.5)}

RULES = {"none", "fixed", "uniform", "match_length", "batch_table"}
"""They choose without regard to rewards, so they are exempt from whatever is about learning."""
LEARNING = [name for name in learner_names() if name not in RULES]
NEVER_RECOVER = {"greedy_released"}
"""They claim neither to find the best arm nor to notice one that appears or gets better."""
SHARE_REWARDS = {"lipschitz", "hedge", "goodput"}
"""They leave out arms of which the rewards of others say enough."""
PARAMS: dict[str, dict[str, Any]] = {"ucbspec": {"scale": 0.25}}
"""What they need to learn within a reply of some hundred tokens."""
FOLLOW_DRIFT: dict[str, dict[str, Any]] = {"thompson": {"discount": 0.95}, "goodput": {}}
"""Those that claim to, and what they need for it."""

WEAK, SHORT, LONG = Arm("weak", 4), Arm("strong", 2), Arm("strong", 8)
GAME = Game((NONE, WEAK, SHORT, LONG), {"weak": 0.3, "strong": 0.9})
"""Means 1, 1.4, 2.7 and 6.1 tokens."""
TIMED_GAME = Game(GAME.arms, GAME.acceptance, "time", token_ms=1.0)
"""Means 1, 1.0, 2.3 and 3.4."""


@pytest.fixture(params=learner_names())
def learner(request: pytest.FixtureRequest) -> Learner[Any]:
    return load_learner(request.param, {})


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_name_is_the_file_name() -> None:
    assert [load_learner(name, {}).name for name in learner_names()] == list(learner_names())


def test_the_expected_learners_are_found() -> None:
    assert set(learner_names()) >= RULES | {
        "ucbspec",
        "exp3spec",
        "greedy_released",
        "thompson",
        "linucb",
        "lipschitz",
        "robust",
        "hedge",
        "goodput",
    }


def test_unknown_parameter_is_refused(learner: Learner[Any]) -> None:
    with pytest.raises(PolicyConfigError, match="unknown parameter"):
        load_learner(learner.name, {"no_such_parameter": 1})


@given(
    rounds=st.lists(
        st.tuples(
            st.sets(st.integers(0, 4), min_size=1),
            st.integers(0, 8),
            st.integers(1, 300),
            st.floats(0.0, 30.0),
        ),
        max_size=30,
    ),
    kind=st.sampled_from(["tokens", "time"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", learner_names())
def test_any_rounds_of_any_arms(
    name: str, rounds: list[tuple[set[int], int, int, float]], kind: RewardKind, seed: int
) -> None:
    """Arms come and go, batches grow and shrink; what is chosen is allowed and changes nothing."""
    every_arm = (*ARMS, LATE_ARM)
    player = Player.start(load_learner(name, {}), ARMS, seed, PRIORS)
    for indices, accepted, batch_size, token_ms in rounds:
        allowed = tuple(every_arm[index] for index in sorted(indices))
        context = RoundContext(allowed, RequestFeatures(code_likeness=0.1), batch_size)
        before = json.dumps(player.state.to_json())
        decision = player.decide(context)
        assert decision.arm in allowed
        assert decision.reason
        assert 0 < decision.propensity <= 1
        assert len(allowed) > 1 or decision.propensity == pytest.approx(1.0)
        assert set(decision.estimates) <= {str(arm) for arm in allowed}
        assert all(np.isfinite(value) for value in decision.estimates.values())
        assert json.dumps(player.state.to_json()) == before, "select does not change the state"
        outcome = outcome_of(decision.arm, min(accepted, decision.arm.gamma), token_ms)
        player.learn(context, decision, outcome, kind)
    json.dumps(player.state.to_json(), allow_nan=False)


def test_the_plain_contract_is_enough(learner: Learner[Any]) -> None:
    """Whoever knows nothing but ``select`` and ``update`` can play every learner."""
    state, generator = learner.initial_state(ARMS, {}), rng()
    for _ in range(20):
        arm, _, propensity, _ = learner.select(state, ARMS, generator)
        assert arm in ARMS
        assert 0 < propensity <= 1
        state = learner.update(state, arm, 1.0 + arm.gamma / 2)


def test_update_returns_a_new_state(learner: Learner[Any]) -> None:
    player = Player.start(learner, GAME.arms, 0)
    before = player.state
    text = json.dumps(before.to_json())
    player.play(GAME, 5)
    assert json.dumps(before.to_json()) == text


def test_state_survives_json(learner: Learner[Any]) -> None:
    player = Player.start(learner, GAME.arms, 0, {LONG: ArmPrior(3, 2.0)})
    player.play(GAME, 25)
    player.play(Game((*GAME.arms, LATE_ARM), {"rest": 0.5}), 25)
    copy = type(player.state).from_json(json.loads(json.dumps(player.state.to_json())))
    assert copy == player.state
    context = RoundContext(GAME.arms)
    for seed in range(5):
        one = choose(learner, player.state, context, rng(seed))
        assert choose(learner, copy, context, rng(seed))[:3] == one[:3]


def test_same_seed_same_game(learner: Learner[Any]) -> None:
    players = [Player.start(learner, GAME.arms, seed=5) for _ in range(2)]
    for player in players:
        player.play(GAME, 40)
    assert players[0].history == players[1].history
    assert players[0].state == players[1].state


@pytest.mark.parametrize("rounds", [0, 12])
def test_propensities_are_the_frequencies(learner: Learner[Any], rounds: int) -> None:
    """They also sum to 1: at first, where all arms are equal, and later, where they are not."""
    player = Player.start(learner, GAME.arms, 1, {arm: ArmPrior(5, 1.0) for arm in GAME.arms})
    player.play(GAME, rounds)
    counts: Counter[Arm] = Counter()
    said: dict[Arm, float] = {}
    draws = 1500
    for _ in range(draws):
        decision = player.decide(RoundContext(GAME.arms))
        counts[decision.arm] += 1
        said[decision.arm] = decision.propensity
    assert sum(said.values()) == pytest.approx(1.0, abs=0.02)
    for arm, propensity in said.items():
        error = 4 * (propensity * (1 - propensity) / draws) ** 0.5
        assert counts[arm] / draws == pytest.approx(propensity, abs=error + 0.01)


def test_one_arm_leaves_no_choice(learner: Learner[Any]) -> None:
    player = Player.start(learner, (LONG,), 0)
    player.play(Game((LONG,), {"strong": 0.9}), 10)
    assert player.pulls == {LONG: 10}
    assert {decision.propensity for decision in player.history} == {1.0}


def test_a_learner_that_trims_stays_within_the_draft(learner: Learner[Any]) -> None:
    for length in range(9):
        for score in (0.0, 0.5, 1.0, 3.0, 100.0):
            assert 0 <= kept(learner, LONG, length, score) <= length


@pytest.mark.parametrize("name", LEARNING)
def test_a_mean_of_zero_is_not_untried(name: str) -> None:
    """Arms that earn nothing are equal to each other, and none is taken for one never pulled."""
    learner = load_learner(name, PARAMS.get(name, {}))
    state, generator = learner.initial_state(GAME.arms, {}), rng()
    reasons = []
    for _ in range(3 * len(GAME.arms)):
        arm, reason, _, _ = learner.select(state, GAME.arms, generator)
        state = learner.update(state, arm, 0.0)
        reasons.append(reason)
    assert "first pull" not in reasons[2 * len(GAME.arms) :]


ROUNDS, SEEDS = 100, 200


@cache
def played(name: str) -> tuple[Counter[Arm], ...]:
    """Return the pulls of ``SEEDS`` games of ``ROUNDS`` rounds."""
    learner = load_learner(name, PARAMS.get(name, {}))
    games = []
    for seed in range(SEEDS):
        player = Player.start(learner, GAME.arms, seed)
        player.play(GAME, ROUNDS)
        games.append(player.pulls)
    return tuple(games)


def mean_regret(games: tuple[Counter[Arm], ...] | list[Counter[Arm]], game: Game) -> float:
    """Return the mean reward lost a game."""
    gaps = {arm: game.mean(game.best) - game.mean(arm) for arm in game.arms}
    return sum(gaps[arm] * count for pulls in games for arm, count in pulls.items()) / len(games)


@pytest.mark.parametrize("name", [name for name in LEARNING if name not in SHARE_REWARDS])
def test_each_arm_is_tried(name: str) -> None:
    missing = sum(len(pulls) < len(GAME.arms) for pulls in played(name))
    assert missing <= 0.01 * SEEDS


@pytest.mark.parametrize("name", [name for name in LEARNING if name not in NEVER_RECOVER])
def test_finds_the_best_arm(name: str) -> None:
    """In 100 pulls the best arm leads in at least 95 % of 200 games."""
    found = sum(pulls.most_common(1)[0][0] == LONG for pulls in played(name))
    assert found >= 0.95 * SEEDS


@pytest.mark.parametrize("name", LEARNING)
def test_regret_is_below_that_of_uniform_choice(name: str) -> None:
    assert mean_regret(played(name), GAME) < 0.75 * mean_regret(played("uniform"), GAME)


@pytest.mark.parametrize("name", LEARNING)
def test_learns_from_time_rewards_too(name: str) -> None:
    learner = load_learner(name, PARAMS.get(name, {}))
    games = []
    for seed in range(20):
        player = Player.start(learner, TIMED_GAME.arms, seed)
        player.play(TIMED_GAME, 150)
        games.append(player.pulls)
    uniform = [Counter(dict.fromkeys(TIMED_GAME.arms, 150 / 4))]
    assert mean_regret(games, TIMED_GAME) < 0.9 * mean_regret(uniform, TIMED_GAME)


@pytest.mark.parametrize("name", [name for name in LEARNING if name not in NEVER_RECOVER])
def test_priors_make_the_first_choice_better(name: str) -> None:
    """A first request in a known context starts as the fleet would."""
    learner = load_learner(name, PARAMS.get(name, {}))

    def first_rewards(pulls: float) -> float:
        priors = GAME.priors(pulls) if pulls else None
        players = [Player.start(learner, GAME.arms, seed, priors) for seed in range(60)]
        arms = [player.decide(RoundContext(GAME.arms)).arm for player in players]
        return sum(GAME.mean(arm) for arm in arms) / len(arms)

    average = sum(GAME.mean(arm) for arm in GAME.arms) / len(GAME.arms)
    assert first_rewards(20.0) > 1.1 * average
    assert first_rewards(20.0) >= first_rewards(0)


@pytest.mark.parametrize("name", [name for name in LEARNING if name not in NEVER_RECOVER])
def test_arms_may_appear_and_vanish(name: str) -> None:
    learner = load_learner(name, PARAMS.get(name, {}))
    few = Game((NONE, WEAK), GAME.acceptance)
    found = 0
    for seed in range(10):
        player = Player.start(learner, few.arms, seed)
        player.play(few, 20)
        player.play(GAME, 80)
        found += player.pulls.most_common(1)[0][0] == LONG
        player.play(few, 10)
        assert {decision.arm for decision in player.history[-10:]} <= set(few.arms)
        player.play(GAME, 20)
        assert LONG in {decision.arm for decision in player.history[-20:]}
    assert found >= 9


@pytest.mark.parametrize("name", FOLLOW_DRIFT)
def test_recovers_after_a_drift(name: str) -> None:
    """The best drafter becomes the worst and the worst the best; plain memory would hold on."""
    learner = load_learner(name, FOLLOW_DRIFT[name])
    arms = (NONE, Arm("first", 6), Arm("second", 6))
    before = Game(arms, {"first": 0.9, "second": 0.2})
    after = Game(arms, {"first": 0.2, "second": 0.9})
    late_pulls = 0
    for seed in range(20):
        player = Player.start(learner, arms, seed)
        player.play(before, 150)
        player.play(after, 100)
        late_pulls += sum(one.arm == after.best for one in player.history[-50:])
    assert late_pulls >= 0.8 * 20 * 50
