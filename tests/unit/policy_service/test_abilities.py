"""What reaches learners through the planner beyond arms and rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policy_service.api import (
    NONE,
    Arm,
    AskItem,
    Decision,
    Outcome,
    RequestFeatures,
    SpeculationOptions,
    TrimItem,
)
from policy_service.config import PolicyConfig
from policy_service.learners.linucb import LinUcbState
from policy_service.losses import LossState
from policy_service.planner import Planner

DRAFTERS = {"lookup": "1"}


def opened(names: list[str], **config: Any) -> Planner:
    planner = Planner(PolicyConfig(**config), DRAFTERS, np.random.default_rng(0))
    for name in names:
        features = RequestFeatures(code_likeness=0.5)
        planner.open(name, features, SpeculationOptions())
    return planner


def outcome(arm: Arm, accepted: int) -> Outcome:
    gamma = arm.gamma
    status = "ok" if gamma else "none"
    return Outcome(gamma, gamma, accepted, accepted + 1, 9.0, 0.0, 1, status, 10.0, 10.0 + gamma)


def state_of(planner: Planner, name: str) -> Any:
    return planner._plans[name].state


def test_batch_size_is_that_of_the_step() -> None:
    names = [f"s{index}" for index in range(70)]
    planner = opened(names, learner="batch_table", gammas=(1, 3))
    [alone] = planner.ask([AskItem("s0", 9)])
    together = planner.ask([AskItem(name, 9) for name in names])
    assert str(alone.arm) == "lookup:3"
    assert {str(one.arm) for one in together} == {"lookup:1"}
    assert together[0].reason == "table: 1 at batch size 70"


def test_features_reach_contextual_learners() -> None:
    planner = opened(["s"], learner="linucb")
    [decision] = planner.ask([AskItem("s", 9)])
    planner.observe([("s", decision, outcome(decision.arm, 0))])
    state = state_of(planner, "s")
    assert isinstance(state, LinUcbState)
    row = state.rows[decision.arm]
    assert state.inverses[row, 0, 3] != 0, "code-likeness was in the context vector"


def test_drafts_are_trimmed_by_learners_that_can() -> None:
    planner = opened(["s"], learner="match_length", params={"factor": 2.0})
    [decision] = planner.ask([AskItem("s", 9)])
    items = [TrimItem("s", decision, 8, score) for score in (0.0, 1.0, 3.0, 9.0)]
    assert planner.trim(items) == [0, 2, 6, 8]
    planner.close("s")
    assert planner.trim(items[:1]) == [8], "of a sequence that has ended meanwhile"


def test_one_verified_draft_teaches_its_prefixes() -> None:
    planner = opened(["s"], learner="hedge", gammas=(2, 4, 8), reward="tokens")
    chances = {"none": 0.25, "lookup:2": 0.25, "lookup:4": 0.25, "lookup:8": 0.25}
    planner.ask([AskItem("s", 9)])
    arm = Arm("lookup", 4)
    decision = Decision(arm, "hedge", "drawn", 0.25, 0, chances)
    planner.observe([("s", decision, outcome(arm, 3))])
    losses = state_of(planner, "s").losses
    assert losses[Arm("lookup", 8)] == losses[NONE] == 0
    assert losses[arm] < losses[Arm("lookup", 2)] < 0


@pytest.mark.parametrize("name", ["exp3spec", "robust", "hedge"])
def test_a_round_without_a_choice_does_not_change_the_odds(name: str) -> None:
    """No room to draft: the round was plain whatever the learner would have drawn."""
    planner = opened(["s"], learner=name)
    [decision] = planner.ask([AskItem("s", 9)])
    planner.observe([("s", decision, outcome(decision.arm, 0))])
    before = state_of(planner, "s")
    assert isinstance(before, LossState)
    for _ in range(5):
        [decision] = planner.ask([AskItem("s", 0)])
        planner.observe([("s", decision, outcome(NONE, 0))])
    after = state_of(planner, "s")
    arms = list(before.losses)
    assert after.of(arms) == pytest.approx(before.of(arms))


def test_a_suspended_drafters_arms_are_asleep() -> None:
    planner = opened(["s"], learner="exp3spec")
    for _ in range(200):
        [decision] = planner.ask([AskItem("s", 9)])
        if decision.arm == NONE:
            planner.observe([("s", decision, outcome(NONE, 0))])
        else:
            late = Outcome(0, 0, 0, 1, 9.0, 1.0, 1, "late")
            planner.observe([("s", decision, late)])
    losses = state_of(planner, "s").losses
    assert losses[NONE] < 4 * losses[Arm("lookup", 2)], "those away were charged as well"
    assert losses[Arm("lookup", 2)] > 0


def test_arms_follow_the_drafters() -> None:
    planner = opened(["s"], learner="uniform", gammas=(2,))
    planner.set_drafters({"lookup": "1", "suffix": "1"})
    seen = {str(planner.ask([AskItem("s", 9)])[0].arm) for _ in range(60)}
    assert seen == {"none", "lookup:2", "suffix:2"}
    planner.set_drafters({})
    assert {str(planner.ask([AskItem("s", 9)])[0].arm) for _ in range(9)} == {"none"}
