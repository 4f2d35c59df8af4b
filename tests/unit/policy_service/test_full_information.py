"""What a round says about arms that were not chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import NONE, Arm, Outcome
from policy_service.full_information import known_rewards
from policy_service.reward import reward

ARMS = (NONE, Arm("a", 2), Arm("a", 4), Arm("a", 8), Arm("b", 2))
OUTCOME = Outcome(4, 4, 3, 4, 30.0, 2.0, 2, "ok", plain_ms=20.0, alike_ms=38.0)


def known(chosen: Arm, outcome: Outcome, kind: str = "tokens") -> dict[str, float]:
    rewards = known_rewards(chosen, outcome, "time" if kind == "time" else "tokens", ARMS)
    return {str(arm): value for arm, value in rewards.items()}


def test_prefixes_and_plain_decoding_are_known() -> None:
    assert known(ARMS[2], OUTCOME) == {"none": 1.0, "a:2": 3.0, "a:4": 4.0}


def test_times_lie_between_a_plain_step_and_this_one() -> None:
    """Plain 20 ms, wait 2 ms, 4 tokens 16 ms: 2 tokens take 30 ms in all."""
    rewards = known(ARMS[2], OUTCOME, "time")
    assert rewards == pytest.approx({"none": 1.0, "a:2": 3 * 20 / 30, "a:4": 4 * 20 / 38})


def test_a_draft_shorter_than_asked_for_is_that_of_shorter_arms() -> None:
    short = replace(OUTCOME, num_drafted=1, num_verified=1, num_accepted=1, alike_ms=26.0)
    assert known(ARMS[3], short) == {"none": 1.0, "a:2": 2.0, "a:4": 2.0, "a:8": 2.0}
    empty = replace(OUTCOME, num_drafted=0, num_verified=0, num_accepted=0, alike_ms=22.0)
    assert known(ARMS[2], empty, "time")["a:2"] == pytest.approx(20 / 22)


def test_a_plain_round_says_nothing_of_drafters() -> None:
    assert known(NONE, replace(OUTCOME, num_verified=0, num_accepted=0)) == {"none": 1.0}


def test_the_chosen_arm_need_not_be_among_the_arms() -> None:
    assert known(Arm("a", 3), OUTCOME)["a:3"] == 4.0


@given(verified=st.integers(0, 8), accepted=st.integers(0, 8), wait_ms=st.floats(0, 50))
def test_the_chosen_arms_reward_is_the_rounds(verified: int, accepted: int, wait_ms: float) -> None:
    outcome = replace(
        OUTCOME, num_verified=verified, num_accepted=min(accepted, verified), draft_wait_ms=wait_ms
    )
    for kind in ("tokens", "time"):
        rewards = known(ARMS[3], outcome, kind)
        assert rewards["a:8"] == reward(outcome, "time" if kind == "time" else "tokens")
        if kind == "tokens":
            assert rewards["none"] <= rewards["a:2"] <= rewards["a:4"] <= rewards["a:8"]
