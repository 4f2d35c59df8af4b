"""What a logged round says of arms that were not chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import NONE, Arm, Decision, Outcome, RewardKind
from policy_service.decision_log.records import RoundRecord
from policy_service.full_information import known_rewards
from policy_service.off_policy.counterfactual import logged_chances, telling, would_have_been
from policy_service.reward import reward
from tests.learner_games import outcome_of
from tests.logged_games import ARMS, record_of

LONG, SHORT, OTHER = Arm("suffix", 6), Arm("suffix", 2), Arm("lookup", 6)


def record(arm: Arm, outcome: Outcome, propensity: float = 0.2, **estimates: float) -> RoundRecord:
    named = {name.replace("_", ":"): value for name, value in estimates.items()}
    return record_of("r", 0, ARMS, Decision(arm, "x", "", propensity, 0, named), outcome)


def all_kept(arm: Arm, length: int, score: float) -> int:
    return length


@given(
    drafted=st.integers(0, 6),
    accepted=st.integers(0, 6),
    ms=st.tuples(st.floats(1, 50), st.floats(0, 20), st.floats(0, 9)),
    kind=st.sampled_from(["tokens", "time"]),
)
def test_earns_what_full_information_says(
    drafted: int, accepted: int, ms: tuple[float, float, float], kind: RewardKind
) -> None:
    accepted = min(accepted, drafted)
    plain_ms, more_ms, wait_ms = ms
    outcome = replace(
        outcome_of(LONG, accepted),
        num_drafted=drafted,
        num_verified=drafted,
        draft_wait_ms=wait_ms,
        plain_ms=plain_ms,
        alike_ms=plain_ms + wait_ms + more_ms,
        draft_status="ok" if drafted else "empty",
    )
    told = record(LONG, outcome)
    expected = known_rewards(LONG, outcome, kind, ARMS)
    for arm in (NONE, SHORT, LONG):
        found = would_have_been(told, arm, all_kept)
        assert found is not None
        assert reward(found, kind) == pytest.approx(expected[arm])
        assert found.num_emitted == found.num_accepted + 1


def test_a_round_that_ended_early_ends_early_for_all() -> None:
    outcome = replace(outcome_of(LONG, 5), num_emitted=2)
    for arm, emitted in ((NONE, 1), (SHORT, 2), (LONG, 2)):
        found = would_have_been(record(LONG, outcome), arm, all_kept)
        assert found is not None
        assert found.num_emitted == emitted


def test_of_a_tree_only_the_accepted_nodes_of_the_prefix_count() -> None:
    tree = replace(record(LONG, outcome_of(LONG, 3)), accepted_nodes=(1, 3, 5))
    found = would_have_been(tree, SHORT, all_kept)
    assert found is not None
    assert found.num_accepted == 1


def test_a_cut_draft_tells_no_more_than_was_verified() -> None:
    outcome = replace(outcome_of(LONG, 1), num_verified=2)
    assert would_have_been(record(LONG, outcome), LONG, all_kept) is None
    found = would_have_been(record(LONG, outcome), SHORT, all_kept)
    assert found is not None
    assert (found.num_drafted, found.num_verified, found.num_accepted) == (2, 2, 1)
    one = would_have_been(record(LONG, outcome), LONG, lambda arm, length, score: 1)
    assert one is not None
    assert (one.num_drafted, one.num_verified) == (6, 1)


def test_chances_are_known_where_the_round_shows_them() -> None:
    outcome = outcome_of(LONG, 1)
    assert logged_chances(record(LONG, outcome, 1.0)) == (0, 0, 1, 0, 0)
    assert logged_chances(record(LONG, outcome, 0.2)) == pytest.approx((0.2,) * 5)
    chances = {"none": 0.1, "suffix_2": 0.2, "suffix_6": 0.4, "lookup_2": 0.2, "lookup_6": 0.1}
    assert logged_chances(record(LONG, outcome, 0.4, **chances)) == tuple(chances.values())
    # Estimates that sum to one but are not the chances, and such as are none at all.
    assert logged_chances(record(LONG, outcome, 0.5, **chances)) is None
    assert logged_chances(record(LONG, outcome, 0.4, none=1.0, suffix_6=3.0)) is None


def test_the_chance_to_be_told_is_that_of_all_who_tell() -> None:
    outcome = outcome_of(LONG, 1)
    uniform = record(LONG, outcome, 0.2)
    chances = logged_chances(uniform)
    told = {str(arm): telling(uniform, chances, arm) for arm in ARMS}
    assert {name: round(one.chance, 3) for name, one in told.items()} == {
        "none": 1.0,
        "suffix:2": 0.4,
        "suffix:6": 0.2,
        "lookup:2": 0.4,
        "lookup:6": 0.2,
    }
    assert [name for name, one in told.items() if one.is_told] == ["none", "suffix:2", "suffix:6"]
    certain = record(LONG, outcome, 1.0)
    assert telling(certain, logged_chances(certain), OTHER).chance == 0.0


def test_without_chances_only_the_same_arm_and_none_are_told() -> None:
    unknown = record(LONG, outcome_of(LONG, 1), 0.3)
    assert logged_chances(unknown) is None
    assert telling(unknown, None, NONE).is_told
    assert telling(unknown, None, LONG).is_told
    assert telling(unknown, None, LONG).chance == 0.3
    assert not telling(unknown, None, SHORT).is_told
