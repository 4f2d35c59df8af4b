from __future__ import annotations

import math

import numpy as np
import pytest

from policy_service.abilities import RoundContext
from policy_service.api import NONE, Arm, ArmPrior, Decision, RequestFeatures
from policy_service.errors import PolicyConfigError
from policy_service.learners.linucb import SIZE, LinUcb, LinUcbState, context_vector
from policy_service.loading import load_learner

A, B = Arm("a", 3), Arm("b", 3)
ARMS = (NONE, A, B)
FEATURES = RequestFeatures(code_likeness=0.3, num_prompt_tokens=255, temperature=2.0)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def learn(learner: LinUcb, state: LinUcbState, arm: Arm, reward: float, batch: int) -> LinUcbState:
    context = RoundContext(ARMS, FEATURES, batch)
    return learner.update_from(state, context, Decision(arm, "linucb", "x"), reward)


def test_context_vector() -> None:
    vector = context_vector(RoundContext(ARMS, FEATURES, 16), last=0.25)
    assert vector.tolist() == pytest.approx([1.0, 0.25, 0.5, 0.3, 1.0, 0.5])


def test_index_is_that_of_ridge_regression() -> None:
    """Sherman-Morrison against the definition: A = I + sum x x', b = sum r x."""
    learner, state = LinUcb(alpha=0.7), LinUcb().initial_state(ARMS, {})
    matrix, target, generator = np.eye(SIZE), np.zeros(SIZE), rng()
    for _ in range(30):
        batch, reward = int(generator.integers(1, 200)), float(generator.uniform(0, 4))
        x = context_vector(RoundContext(ARMS, FEATURES, batch), state.last)
        matrix += np.outer(x, x)
        target += reward / 4 * x
        state = learn(learner, state, A, reward, batch)
    x = context_vector(RoundContext(ARMS, FEATURES, 7), state.last)
    expected = x @ np.linalg.solve(matrix, target) + 0.7 * math.sqrt(x @ np.linalg.solve(matrix, x))
    untried = 0.7 * math.sqrt(x @ x)
    estimates = learner.select_in(state, RoundContext(ARMS, FEATURES, 7), rng())[3]
    assert estimates["a:3"] == pytest.approx(4 * expected)
    assert estimates["b:3"] == estimates["none"] == pytest.approx(4 * untried)


def test_the_context_decides() -> None:
    """One arm pays on an idle server, the other on a busy one; both are learnt at once."""
    learner, state = LinUcb(alpha=0.3), LinUcb().initial_state((A, B), {})
    for turn in range(120):
        batch = 1 if turn % 2 else 128
        arm = A if turn % 4 < 2 else B
        state = learn(learner, state, arm, 4.0 if (arm == A) == (batch == 1) else 1.0, batch)
    for batch, best in ((1, A), (128, B)):
        context = RoundContext((A, B), FEATURES, batch)
        assert learner.select_in(state, context, rng())[0] == best


def test_a_prior_is_rounds_of_the_intercept() -> None:
    learner = LinUcb(alpha=1e-9)
    state = learner.initial_state(ARMS, {A: ArmPrior(20, 3.0)})
    estimates = learner.select(state, ARMS, rng())[3]
    assert estimates["a:3"] == pytest.approx(3.0 * 20 / 21)
    assert estimates["b:3"] == pytest.approx(0.0, abs=1e-6)
    wide = LinUcb(alpha=1.0).select(state, ARMS, rng())[3]
    x = context_vector(RoundContext(ARMS), state.last)
    width = math.sqrt(1 / 21 + float(x[1:] @ x[1:]))
    assert wide["a:3"] == pytest.approx(3.0 * 20 / 21 + 4 * width)


def test_an_arm_that_appears_gets_a_regression_of_its_own() -> None:
    learner, late = LinUcb(), Arm("late", 2)
    state = learner.update(learner.initial_state((NONE,), {}), late, 2.0)
    assert dict(state.rows) == {NONE: 0, late: 1}
    assert state.thetas.shape == (3, SIZE)
    assert not state.thetas[2].any()
    assert LinUcbState.from_json(state.to_json()) == state


@pytest.mark.parametrize("params", [{"alpha": 0}, {"alpha": "wide"}, {"alpha": True}])
def test_bad_parameters(params: dict[str, object]) -> None:
    with pytest.raises(PolicyConfigError, match="must be a number"):
        load_learner("linucb", params)
