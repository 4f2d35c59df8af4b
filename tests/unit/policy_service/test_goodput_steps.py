"""``goodput`` through the planner: whole steps of a Verifier on paper."""

from __future__ import annotations

import json
from functools import cache
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
from policy_service.contexts import context_chain
from policy_service.goodput.cells import parse_cell
from policy_service.goodput.fleet import Fleet
from policy_service.goodput.state import PromptState
from policy_service.merge import totals
from policy_service.planner import Planner
from tests.goodput_games import LOOKUP, NEURAL, TIMES, USELESS, Verifier, best_fixed

DRAFTERS = {"lookup": LOOKUP, "neural": NEURAL}


def goodput(**params: Any) -> PolicyConfig:
    return PolicyConfig(learner="goodput", params=params)


def fleet_of(planner: Planner) -> Fleet:
    batch = planner._batches["goodput"]
    assert isinstance(batch, Fleet)
    return batch


@cache
def learnt(batch_size: int, steps: int) -> Verifier:
    return Verifier(DRAFTERS, goodput(), batch_size, seed=5).run(steps)


@pytest.mark.parametrize(("batch_size", "steps"), [(1, 600), (32, 60)])
def test_as_fast_as_the_best_fixed_arm(batch_size: int, steps: int) -> None:
    """Whatever the batch size; at 32 sequences most drafts cost more than they bring."""
    _, rate = best_fixed(DRAFTERS, batch_size, steps)
    assert learnt(batch_size, steps).rate > 0.98 * rate


def test_useless_drafts_are_left_alone_and_cost_little() -> None:
    verifier = Verifier({"useless": USELESS}, goodput(), 4, seed=1).run(400)
    plain = verifier.times.predict_ms(4, 4, 800) / 4
    assert verifier.ms / verifier.tokens < 1.03 * plain


def guards(decisions: list[list[Decision]]) -> int:
    return sum(step[0].reason.startswith("guard") for step in decisions)


def plain_steps(decisions: list[list[Decision]]) -> int:
    return sum(all(one.arm == NONE for one in step) for step in decisions)


def test_drafts_that_cost_more_than_is_told_are_given_up_and_taken_up_again() -> None:
    """Steps with drafts take far longer than the engine's times say; later they do not."""
    verifier = Verifier(DRAFTERS, goodput(), 4, seed=2)
    verifier.slowdown_ms = 60.0
    verifier.run(120)
    assert plain_steps(verifier.decisions[-60:]) > 50
    verifier.slowdown_ms = 0.0
    verifier.run(500)
    assert plain_steps(verifier.decisions[-60:]) < 20


def test_probes_are_few_and_their_propensity_is_their_frequency() -> None:
    verifier = Verifier(DRAFTERS, goodput(probe_share=0.1), 2, seed=3).run(500)
    rounds = [decision for step in verifier.decisions for decision in step]
    probes = [decision for decision in rounds if decision.reason.startswith("probe")]
    assert 0 < len(probes) <= 0.11 * len(rounds)
    assert all(decision.propensity < 0.1 for decision in probes)
    best = [one for one in rounds if one.reason.startswith("best")]
    assert all(0.8 < decision.propensity <= 1.0 for decision in best)
    missed = sum(1 - decision.propensity for decision in best)
    assert len(probes) + guards(verifier.decisions) * 2 == pytest.approx(missed, rel=0.35)


def test_same_seed_same_choices() -> None:
    runs = [Verifier(DRAFTERS, goodput(), 3, seed=4).run(60) for _ in range(2)]
    assert runs[0].decisions == runs[1].decisions


def pooled(verifier: Verifier) -> Snapshot:
    """Return what the pool would have after a Verifier's counts."""
    sums = totals({0: verifier.planner.take_deltas()})
    cells = {key: (float(one.pulls), float(one.reward_tokens)) for key, one in sums.items()}
    return Snapshot(7, 0.0, "m", cells)


def test_what_one_verifier_learnt_others_start_with() -> None:
    """The pool cuts what the first rounds of Verifiers lose that have seen nothing yet."""
    snapshot = pooled(Verifier(DRAFTERS, goodput(), 8, seed=6).run(150))

    def early_ms(known: Snapshot | None) -> float:
        tokens, ms = 0, 0.0
        for seed in range(10, 26):
            verifier = Verifier(DRAFTERS, goodput(), 1, seed=seed)
            if known is not None:
                verifier.planner.set_snapshot(known)
            verifier.run(16)
            tokens, ms = tokens + verifier.tokens, ms + verifier.ms
        return ms / tokens

    assert early_ms(snapshot) < 0.96 * early_ms(None)


def test_the_pools_counts_shift_the_first_decision() -> None:
    def first_arm(rates: dict[str, int]) -> Arm:
        planner = Planner(goodput(), {"a": "1", "b": "1"}, np.random.default_rng(0))
        planner.set_step_times(TIMES)
        cells = {
            CellKey("global", f"{name}/score4/depth{depth}/rank0", "1"): (100.0, float(accepted))
            for name, accepted in rates.items()
            for depth in range(1, 9)
        }
        drafts = {
            CellKey("global", f"{n}/score4/depth0/rank0", "1"): (100.0, 1600.0) for n in rates
        }
        planner.set_snapshot(Snapshot(1, 0.0, "m", {**cells, **drafts}))
        planner.open("s", RequestFeatures(), SpeculationOptions())
        return planner.ask([AskItem("s", 100)])[0].arm

    assert first_arm({"a": 90, "b": 30}).drafter == "a"
    assert first_arm({"a": 30, "b": 90}).drafter == "b"
    assert first_arm({"a": 1, "b": 1}) == NONE


def test_counts_of_a_context_are_bounded_and_are_no_arms() -> None:
    deltas = learnt(1, 600).planner.take_deltas()
    cells = {key: counts for key, counts in deltas.items() if parse_cell(key.arm)}
    assert {key.context for key in cells} == {context_chain(RequestFeatures(tenant="acme"))[0]}
    assert 20 < len(cells) <= 2 * 9 * 12
    assert {Arm.parse(key.arm) for key in deltas if key not in cells} >= {NONE, Arm("lookup", 8)}
    assert all(counts.reward_tokens <= counts.pulls * 16 for counts in cells.values())


def test_a_prompts_state_survives_json() -> None:
    verifier = learnt(1, 600)
    [plan] = verifier.planner._plans.values()
    state = fleet_of(verifier.planner).state(plan.seat)
    assert set(state.effects) == set(DRAFTERS)
    assert PromptState.from_json(json.loads(json.dumps(state.to_json()))) == state


def opened(names: list[str], **options: Any) -> Planner:
    planner = Planner(
        goodput(probe_share=0, guard_share=0), {"lookup": "1"}, np.random.default_rng(0)
    )
    planner.set_step_times(TIMES)
    for name in names:
        planner.open(name, RequestFeatures(), SpeculationOptions(**options))
    return planner


def outcome(drafted: int, verified: int, accepted: int, status: str = "ok") -> Outcome:
    return Outcome(drafted, verified, accepted, accepted + 1, 25.0, 1.0, 2, status)


def tokens_counted(planner: Planner) -> dict[str, tuple[int, int]]:
    return {
        key.arm: (counts.pulls, counts.reward_tokens)
        for key, counts in planner.take_deltas().items()
        if "/" in key.arm
    }


def play_draft(planner: Planner, drafted: int, verified: int, accepted: int, **tree: Any) -> None:
    decision = Decision(Arm("lookup", 4), "goodput", "x")
    planner.ask([AskItem("s", 4)])
    planner.trim([TrimItem("s", decision, drafted, 4.0, tree.get("parents", ()))])
    rounds = [("s", decision, outcome(drafted, verified, accepted))]
    planner.observe(rounds, {"s": tree.get("accepted_nodes", ())})


def test_only_tokens_whose_parents_were_accepted_are_counted() -> None:
    planner = opened(["s"])
    play_draft(planner, drafted=4, verified=3, accepted=1)
    assert tokens_counted(planner) == {
        "lookup/score8/depth0/rank0": (1, 16),
        "lookup/score8/depth1/rank0": (1, 1),
        "lookup/score8/depth2/rank0": (1, 0),
    }
    play_draft(planner, drafted=2, verified=2, accepted=2)
    assert tokens_counted(planner) == {
        "lookup/score8/depth0/rank0": (1, 2),
        "lookup/score8/depth1/rank0": (1, 1),
        "lookup/score8/depth2/rank0": (1, 1),
    }


def test_of_a_tree_siblings_are_counted_by_rank() -> None:
    planner = opened(["s"])
    play_draft(planner, 4, 4, 2, parents=(-1, -1, 0, 1), accepted_nodes=(1, 3))
    assert tokens_counted(planner) == {
        "lookup/score8/depth0/rank0": (1, 2),
        "lookup/score8/depth1/rank0": (1, 0),
        "lookup/score8/depth1/rank1": (1, 1),
        "lookup/score8/depth2/rank0": (1, 1),
    }


@pytest.mark.parametrize("status", ["late", "failed", "busy"])
def test_a_drafter_that_did_not_answer_teaches_nothing_of_its_drafts(status: str) -> None:
    planner = opened(["s"])
    [decision] = planner.ask([AskItem("s", 9)])
    assert decision.arm != NONE
    planner.trim([TrimItem("s", decision, 0)])
    planner.observe([("s", decision, outcome(0, 0, 0, status))])
    assert tokens_counted(planner) == {}


def test_what_cannot_be_planned_together_is_planned_alone_and_counts_as_rows() -> None:
    planner = opened(["s"])
    planner.open("pinned", RequestFeatures(), SpeculationOptions(drafter="lookup", gamma=5))
    planner.open("odd", RequestFeatures(), SpeculationOptions(gamma=3))
    planner.open("other", RequestFeatures(), SpeculationOptions(learner="uniform"))
    items = [AskItem(name, 9) for name in ("pinned", "s", "odd", "other")]
    decisions = planner.ask(items)
    assert [str(decisions[0].arm), str(decisions[2].arm)] == ["lookup:5", "lookup:3"]
    assert decisions[1].learner == decisions[2].learner == "goodput"
    assert planner._load.batch_size == 4
    assert planner._load.other_rows == 8 + decisions[3].arm.gamma
    kept = planner.trim(
        [TrimItem(i.sequence_id, d, 3, 1.0) for i, d in zip(items, decisions, strict=True)]
    )
    assert kept[0] == kept[2] == 3
    planner.observe(
        [(i.sequence_id, d, outcome(3, 1, 1)) for i, d in zip(items, decisions, strict=True)]
    )


def test_no_room_and_no_drafter_decode_plainly() -> None:
    planner = opened(["s", "t"])
    decisions = planner.ask([AskItem("s", 0), AskItem("t", 1)])
    assert decisions[0].reason == "no room"
    assert decisions[1].arm in (NONE, Arm("lookup", 2))
    planner.set_drafters({})
    decisions = planner.ask([AskItem("s", 9), AskItem("t", 9)])
    assert {decision.arm for decision in decisions} == {NONE}


def test_drafters_may_come_and_change_their_version() -> None:
    planner = opened(["s"])
    planner.set_drafters({"lookup": "2", "suffix": "1"})
    seen = set()
    for _ in range(40):
        [decision] = planner.ask([AskItem("s", 9)])
        seen.add(decision.arm.drafter)
        planner.trim([TrimItem("s", decision, 0)] if decision.arm.gamma else [])
        planner.observe(
            [("s", decision, outcome(0, 0, 0, "empty" if decision.arm.gamma else "none"))]
        )
    assert seen >= {"lookup", "suffix"}
    versions = {
        (key.arm.split("/")[0], key.drafter_version)
        for key in planner.take_deltas()
        if "/" in key.arm
    }
    assert versions == {("lookup", "2"), ("suffix", "1")}


def test_an_explanation_says_what_was_expected() -> None:
    planner = opened(["s"])
    [decision] = planner.ask([AskItem("s", 9)])
    assert decision.reason.startswith("best goodput: ")
    assert set(decision.estimates) == {"none", "lookup:2", "lookup:4", "lookup:8"}
    assert max(decision.estimates, key=decision.estimates.__getitem__) == str(decision.arm)


def test_plain_counts_of_arms_are_as_ever() -> None:
    planner = opened(["s"])
    play_draft(planner, drafted=4, verified=3, accepted=1)
    counts = {key.arm: one for key, one in planner.take_deltas().items() if "/" not in key.arm}
    assert counts == {"lookup:4": ArmCounts(1, 2, 4, 3, 1, 25_000, 0, 2_000_000)}


def test_without_any_drafter_and_then_with_one() -> None:
    planner = Planner(goodput(), {}, np.random.default_rng(0))
    planner.open("s", RequestFeatures(), SpeculationOptions())
    [decision] = planner.ask([AskItem("s", 9)])
    assert decision.arm == NONE
    planner.observe([("s", decision, outcome(0, 0, 0, "none"))])
    planner.set_drafters({"lookup": "1"})
    assert planner.ask([AskItem("s", 9)])[0].arm.drafter == "lookup"
