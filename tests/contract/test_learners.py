"""What every file in ``policy_service/learners`` must hold."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_service.api import NONE, Arm, ArmPrior, Learner
from policy_service.errors import PolicyConfigError
from policy_service.loading import learner_names, load_learner

ARMS = (NONE, Arm("lookup", 2), Arm("lookup", 4), Arm("lookup", 8))
LATE_ARM = Arm("rest", 4)
PRIORS = {NONE: ArmPrior(20.0, 1.0), ARMS[2]: ArmPrior(0.25, 2.5)}


@pytest.fixture(params=learner_names())
def learner(request: pytest.FixtureRequest) -> Learner[Any]:
    return load_learner(request.param, {})


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_name_is_the_file_name() -> None:
    assert [load_learner(name, {}).name for name in learner_names()] == list(learner_names())


def test_the_expected_learners_are_found() -> None:
    assert {"none", "fixed", "uniform", "ucbspec"} <= set(learner_names())


def test_unknown_parameter_is_refused(learner: Learner[Any]) -> None:
    with pytest.raises(PolicyConfigError, match="unknown parameter"):
        load_learner(learner.name, {"no_such_parameter": 1})


@given(
    rounds=st.lists(
        st.tuples(st.sets(st.integers(0, 4), min_size=1), st.integers(1, 9)), max_size=30
    ),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize("name", learner_names())
def test_chooses_only_allowed_arms_and_changes_nothing(
    name: str, rounds: list[tuple[set[int], int]], seed: int
) -> None:
    learner = load_learner(name, {})
    every_arm = (*ARMS, LATE_ARM)
    state = learner.initial_state(ARMS, PRIORS)
    for indices, reward in rounds:
        allowed = [every_arm[index] for index in sorted(indices)]
        before = json.dumps(state.to_json())
        arm, reason, propensity, _ = learner.select(state, allowed, rng(seed))
        again = learner.select(state, allowed, rng(seed))
        assert arm in allowed
        assert reason
        assert 0 < propensity <= 1
        assert again[0] == arm, "same seed, same choice"
        assert json.dumps(state.to_json()) == before, "select does not change the state"
        state = learner.update(state, arm, reward)


def test_update_returns_a_new_state(learner: Learner[Any]) -> None:
    state = learner.initial_state(ARMS, PRIORS)
    before = json.dumps(state.to_json())
    learner.update(state, ARMS[1], 3)
    assert json.dumps(state.to_json()) == before


def test_state_survives_json(learner: Learner[Any]) -> None:
    state = learner.initial_state(ARMS, PRIORS)
    for reward, arm in enumerate((*ARMS, LATE_ARM), start=1):
        state = learner.update(state, arm, reward)
    copy = type(state).from_json(json.loads(json.dumps(state.to_json())))
    assert copy == state


def test_propensities_are_the_frequencies(learner: Learner[Any]) -> None:
    """Also covers that propensities sum to 1: every arm's share is what its propensity says."""
    state = learner.initial_state(ARMS, {arm: ArmPrior(5, 1.0) for arm in ARMS})
    generator, draws = rng(1), 4000
    counts: Counter[Arm] = Counter()
    said: dict[Arm, float] = {}
    for _ in range(draws):
        arm, _, propensity, _ = learner.select(state, ARMS, generator)
        counts[arm] += 1
        said[arm] = propensity
    assert sum(said.values()) == pytest.approx(1.0)
    for arm, propensity in said.items():
        assert counts[arm] / draws == pytest.approx(propensity, abs=0.04)


def test_an_arm_may_appear_later(learner: Learner[Any]) -> None:
    state = learner.initial_state((NONE,), {})
    state = learner.update(state, NONE, 1)
    arm, _, _, _ = learner.select(state, (NONE, LATE_ARM), rng())
    state = learner.update(state, LATE_ARM, 4)
    arm, _, _, _ = learner.select(state, (NONE, LATE_ARM), rng())
    assert arm in (NONE, LATE_ARM)


@pytest.mark.parametrize("name", ["ucbspec"])
def test_finds_the_best_arm(name: str) -> None:
    """Means 1, 2, 3 and 6: in 400 pulls the best arm leads in at least 95 % of 200 games."""
    learner = load_learner(name, {"scale": 0.25})
    means = dict(zip(ARMS, (1.0, 2.0, 3.0, 6.0), strict=True))
    found = 0
    for seed in range(200):
        generator = rng(seed)
        state = learner.initial_state(ARMS, {})
        pulls: Counter[Arm] = Counter()
        for _ in range(400):
            arm, _, _, _ = learner.select(state, ARMS, generator)
            pulls[arm] += 1
            reward = 1 + int(generator.binomial(8, (means[arm] - 1) / 8))
            state = learner.update(state, arm, reward)
        found += pulls.most_common(1)[0][0] == ARMS[3]
    assert found >= 190
