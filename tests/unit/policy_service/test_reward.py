from __future__ import annotations

from dataclasses import replace

import pytest

from policy_service.api import Outcome
from policy_service.reward import reward, round_counts

OUTCOME = Outcome(
    num_drafted=4,
    num_verified=4,
    num_accepted=3,
    num_emitted=4,
    step_ms=30.0,
    draft_wait_ms=2.0,
    batch_size=2,
    draft_status="ok",
    plain_ms=20.0,
    alike_ms=40.0,
)


def test_tokens_are_the_accepted_ones_and_one_more() -> None:
    assert reward(OUTCOME, "tokens") == 4


def test_time_pays_the_share_that_plain_decoding_would_have_taken() -> None:
    assert reward(OUTCOME, "time") == pytest.approx(2.0)


def test_a_plain_round_is_worth_one_and_none_is_worth_more_than_its_tokens() -> None:
    plain = replace(OUTCOME, num_drafted=0, num_verified=0, num_accepted=0, alike_ms=20.0)
    assert reward(plain, "time") == 1
    assert reward(replace(OUTCOME, alike_ms=10.0), "time") == 4


def test_without_known_times_tokens_are_what_there_is() -> None:
    assert reward(replace(OUTCOME, plain_ms=0.0), "time") == 4


def test_both_rewards_are_counted() -> None:
    counts = round_counts(OUTCOME)
    assert (counts.reward_tokens, counts.reward_micros) == (4, 2_000_000)
    assert (counts.reward("tokens"), counts.reward("time")) == (4, 2)
