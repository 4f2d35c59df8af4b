from __future__ import annotations

import itertools
import sys
import threading
from typing import Any

import numpy as np
import pytest

from policy_service.api import (
    NONE,
    Arm,
    ArmCounts,
    AskItem,
    CellKey,
    Decision,
    Outcome,
    RequestFeatures,
    Snapshot,
    SpeculationOptions,
    TrimItem,
)
from policy_service.config import PolicyConfig
from policy_service.contexts import GLOBAL, context_chain
from policy_service.errors import PolicyConfigError
from policy_service.planner import Planner

LOOKUP = {"prompt_lookup": "v1"}
FEATURES = RequestFeatures(tenant="acme", route="chat")


def planner(versions: dict[str, str] | None = None, **config: Any) -> Planner:
    known = LOOKUP if versions is None else versions
    config = {"learner": "ucbspec", **config}
    return Planner(PolicyConfig(**config), known, np.random.default_rng(0))


def opened(plan: Planner, **options: Any) -> Planner:
    plan.open("s", FEATURES, SpeculationOptions(**options))
    return plan


def outcome(accepted: int = 0, status: str = "ok", drafted: int = 4) -> Outcome:
    return Outcome(drafted, drafted, accepted, accepted + 1, 12.5, 1.0, 1, status)


def play(plan: Planner, rounds: int, status: str = "ok", room: int = 100) -> list[Decision]:
    decisions = []
    for _ in range(rounds):
        [decision] = plan.ask([AskItem("s", room)])
        answer = outcome(status="none", drafted=0) if decision.arm == NONE else outcome(1, status)
        plan.observe([("s", decision, answer)])
        decisions.append(decision)
    return decisions


def arms(decisions: list[Decision]) -> list[str]:
    return [str(decision.arm) for decision in decisions]


def test_every_arm_is_tried_then_the_best_bound_is_chosen() -> None:
    decisions = play(opened(planner()), 5)
    assert arms(decisions[:4]) == ["none", "prompt_lookup:2", "prompt_lookup:4", "prompt_lookup:8"]
    assert decisions[4].reason == "highest bound"
    assert decisions[4].learner == "ucbspec"
    assert set(decisions[4].estimates) == set(arms(decisions[:4]))


@pytest.mark.parametrize(
    ("options", "expected", "reason"),
    [
        ({"mode": "off"}, {"none"}, "off"),
        ({"gamma": 0}, {"none"}, "off"),
        ({"learner": "none"}, {"none"}, "plain decoding"),
        ({"drafter": "rest", "gamma": 5}, {"rest:5"}, "pinned"),
        ({"gamma": 3}, {"rest:3", "prompt_lookup:3"}, None),
        ({"drafter": "rest"}, {"none", "rest:2", "rest:4", "rest:8"}, None),
    ],
)
def test_options_restrict_the_arms(
    options: dict[str, Any], expected: set[str], reason: str | None
) -> None:
    plan = opened(planner({**LOOKUP, "rest": "v2"}), **options)
    decisions = play(plan, 8)
    assert set(arms(decisions)) == expected
    if reason is not None:
        assert {decision.reason for decision in decisions} == {reason}


def test_no_room_decodes_plainly_even_if_pinned() -> None:
    plan = opened(planner(), drafter="prompt_lookup", gamma=4)
    [decision] = plan.ask([AskItem("s", 0)])
    assert (decision.arm, decision.reason) == (NONE, "no room")


def test_counts_go_to_the_admitted_context_only() -> None:
    plan = opened(planner(learner="fixed", params={"arm": "prompt_lookup:4"}))
    [decision] = plan.ask([AskItem("s", 9)])
    plan.observe([("s", decision, outcome(accepted=3))])
    key = CellKey(context_chain(FEATURES)[0], "prompt_lookup:4", "v1")
    assert plan.take_deltas() == {key: ArmCounts(1, 4, 4, 4, 3, 12500, 0, 4_000_000)}
    assert plan.take_deltas() == {}


def test_beyond_the_limit_counts_go_to_the_parent() -> None:
    plan = planner(max_contexts=1)
    plan.open("first", RequestFeatures(tenant="first"), SpeculationOptions())
    plan = opened(plan, mode="off")
    play(plan, 1)
    assert list(plan.take_deltas()) == [CellKey(context_chain(FEATURES)[1], "none")]


@pytest.mark.parametrize("status", ["late", "failed", "away", "malformed", "need_context"])
def test_a_round_without_an_answer_teaches_nothing(status: str) -> None:
    plan = opened(planner(), drafter="prompt_lookup", gamma=4)
    play(plan, 3, status)
    [counts] = plan.take_deltas().values()
    assert counts == ArmCounts(failed=3)


def test_an_empty_draft_is_a_pull_that_earned_one() -> None:
    plan = opened(planner(), drafter="prompt_lookup", gamma=4)
    [decision] = plan.ask([AskItem("s", 9)])
    plan.observe([("s", decision, outcome(0, "empty", drafted=0))])
    [counts] = plan.take_deltas().values()
    assert counts == ArmCounts(pulls=1, reward_tokens=1, step_us=12500, reward_micros=1_000_000)


def test_a_stop_within_the_draft_does_not_lower_the_reward() -> None:
    plan = opened(planner(), drafter="prompt_lookup", gamma=4)
    [decision] = plan.ask([AskItem("s", 9)])
    plan.observe([("s", decision, Outcome(4, 4, 3, 2, 1.0, 0.0, 1, "ok"))])
    [counts] = plan.take_deltas().values()
    assert counts.reward_tokens == 4


def test_a_faulty_drafter_is_left_alone_for_longer_each_time_and_tried_again() -> None:
    decisions = play(opened(planner()), 80, "late")
    asked = [index for index, decision in enumerate(decisions) if decision.arm != NONE]
    gaps = [later - earlier - 1 for earlier, later in itertools.pairwise(asked)]
    assert gaps[:5] == [1, 2, 4, 8, 16]
    assert len(asked) >= 6, "it is never given up"


def test_an_answer_ends_the_suspension() -> None:
    plan = opened(planner())
    play(plan, 10, "late")
    assert any(decision.arm != NONE for decision in play(plan, 40, "ok"))
    tail = play(plan, 6, "ok")
    assert sum(decision.arm != NONE for decision in tail) >= 4


def test_a_pinned_arm_is_not_suspended_but_an_unknown_drafter_decodes_plainly() -> None:
    plan = opened(planner(), drafter="prompt_lookup", gamma=4)
    assert set(arms(play(plan, 5, "late"))) == {"prompt_lookup:4"}
    plan.set_drafters({})
    [decision] = plan.ask([AskItem("s", 9)])
    assert (decision.arm, decision.reason) == (NONE, "drafter away")


def test_drafters_may_come_and_go() -> None:
    plan = opened(planner({}))
    assert set(arms(play(plan, 3))) == {"none"}
    plan.set_drafters(LOOKUP)
    assert "prompt_lookup:2" in arms(play(plan, 2))
    plan.set_drafters({})
    assert set(arms(play(plan, 3))) == {"none"}
    plan.check(SpeculationOptions(drafter="prompt_lookup"))


def test_gamma_pinned_without_any_drafter() -> None:
    [decision] = play(opened(planner({}), gamma=4), 1)
    assert (decision.arm, decision.reason) == (NONE, "no drafter")


def snapshot(version: int = 7) -> Snapshot:
    cells = {
        CellKey(GLOBAL, "none"): (500.0, 500.0),
        CellKey(GLOBAL, "prompt_lookup:2", "v1"): (500.0, 600.0),
        CellKey(GLOBAL, "prompt_lookup:4", "v1"): (500.0, 600.0),
        CellKey(GLOBAL, "prompt_lookup:8", "v1"): (500.0, 4000.0),
    }
    return Snapshot(version, 0.0, "m", cells)


def test_priors_decide_the_first_round() -> None:
    plan = planner(params={"scale": 0.1})
    plan.set_snapshot(snapshot())
    [first] = play(opened(plan), 1)
    assert (str(first.arm), first.reason) == ("prompt_lookup:8", "highest bound")
    assert first.snapshot_version == 7


def test_priors_are_those_of_the_snapshot_at_opening() -> None:
    plan = opened(planner())
    plan.set_snapshot(snapshot())
    [decision] = play(plan, 1)
    assert (decision.snapshot_version, decision.reason) == (0, "first pull")


def test_a_new_drafter_version_starts_without_priors() -> None:
    plan = planner({"prompt_lookup": "v2"})
    plan.set_snapshot(snapshot())
    [first] = play(opened(plan), 1)
    assert first.reason == "first pull"


def test_counts_are_for_the_version_that_was_asked() -> None:
    plan = opened(planner(), drafter="prompt_lookup", gamma=4)
    [decision] = plan.ask([AskItem("s", 9)])
    plan.set_drafters({"prompt_lookup": "v2"})
    plan.observe([("s", decision, outcome())])
    [key] = plan.take_deltas()
    assert key.drafter_version == "v1"


def test_closed_sequences_are_forgotten() -> None:
    plan = opened(planner())
    [decision] = plan.ask([AskItem("s", 9)])
    plan.close("s")
    plan.close("s")
    plan.observe([("s", decision, outcome())])
    assert plan.take_deltas() == {}
    with pytest.raises(KeyError):
        plan.ask([AskItem("s", 9)])


def test_trim_keeps_everything() -> None:
    decision = Decision(Arm("a", 4), "ucbspec", "x")
    assert planner().trim([TrimItem("s", decision, 3), TrimItem("t", decision, 0)]) == [3, 0]


def test_check_says_what_is_wrong() -> None:
    with pytest.raises(PolicyConfigError, match="did you mean 'prompt_lookup'"):
        planner().check(SpeculationOptions(drafter="prompt_lokup"))


def test_open_takes_unknown_names() -> None:
    plan = opened(planner(), learner="of_a_later_version")
    assert play(plan, 1)[0].learner == "ucbspec"


def test_notifies_when_much_waits() -> None:
    plan = opened(planner(), mode="off")
    calls: list[int] = []
    plan.notify_after(3, lambda: calls.append(1))
    play(plan, 2)
    assert calls == []
    play(plan, 1)
    assert calls == [1]


def test_no_round_is_lost_between_threads() -> None:
    plan = opened(planner(), mode="off")
    taken: list[int] = []
    stop = threading.Event()

    def take() -> None:
        while not stop.is_set():
            taken.append(sum(counts.pulls for counts in plan.take_deltas().values()))

    thread = threading.Thread(target=take)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        play(plan, 20_000)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    rest = sum(counts.pulls for counts in plan.take_deltas().values())
    assert len(taken) > 10
    assert sum(taken) + rest == 20_000
