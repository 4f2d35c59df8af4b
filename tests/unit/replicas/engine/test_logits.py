from __future__ import annotations

import torch

from replicas.api import SamplingParams
from replicas.engine.logits import (
    apply_penalties,
    banned_next,
    bias_and_bans,
    has_bias_or_bans,
    needs_history,
    never_allowed,
)

INF = float("inf")
VOCAB = torch.arange(4)


def params(**changes: object) -> SamplingParams:
    return SamplingParams(max_tokens=10, **changes)  # type: ignore[arg-type]  # a test's shorthand


def test_penalties_touch_what_was_emitted() -> None:
    row = torch.tensor([1.0, 1.0, -1.0, 1.0])
    some = params(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0)
    apply_penalties(row, some, torch.tensor([2]), {1: 2})
    assert row.tolist() == [1.0, 0.5 - 1.0, -2.0, 1.0]


def test_a_token_of_prompt_and_reply_is_penalised_once() -> None:
    row = torch.tensor([2.0, 2.0])
    apply_penalties(row, params(repetition_penalty=2.0), torch.tensor([0]), {0: 3})
    assert row.tolist() == [1.0, 2.0]


def test_presence_and_frequency_do_not_see_the_prompt() -> None:
    row = torch.tensor([2.0, 2.0])
    apply_penalties(row, params(presence_penalty=1.0), torch.tensor([0]), {1: 1})
    assert row.tolist() == [2.0, 1.0]


def test_bias_is_added_and_banned_tokens_never_come() -> None:
    assert bias_and_bans(params(logit_bias={0: 2.0}), VOCAB).tolist() == [2, 0, 0, 0]
    some = params(logit_bias={0: 2.0, 1: 5.0}, banned_token_ids=(1,), banned_sequences=((3,),))
    assert bias_and_bans(some, VOCAB).tolist() == [2, -INF, 0, -INF]


def test_only_allowed_tokens_may_come() -> None:
    assert bias_and_bans(params(allowed_token_ids=(1, 3)), VOCAB).tolist() == [-INF, 0, -INF, 0]
    some = params(allowed_token_ids=(1, 3, 3), logit_bias={1: 1.0, 2: 100.0}, banned_token_ids=(3,))
    assert bias_and_bans(some, VOCAB).tolist() == [-INF, 1, -INF, -INF]


def test_who_needs_what() -> None:
    assert not has_bias_or_bans(params())
    assert has_bias_or_bans(params(logit_bias={1: 1.0}))
    assert has_bias_or_bans(params(allowed_token_ids=(1,)))
    assert has_bias_or_bans(params(banned_token_ids=(1,)))
    one_token, two_tokens = params(banned_sequences=((1,),)), params(banned_sequences=((1, 2),))
    assert has_bias_or_bans(one_token)
    assert not needs_history(one_token)
    assert not has_bias_or_bans(two_tokens)
    assert needs_history(two_tokens)
    assert never_allowed(one_token) == {1}


def test_the_last_token_of_a_banned_sequence_may_not_follow_the_others() -> None:
    sequences = [(5, 6), (7, 5, 8), (9,), (5, 5, 5, 5)]
    assert set(banned_next(sequences, [])) == set()
    assert set(banned_next(sequences, [5])) == {6}
    assert set(banned_next(sequences, [7, 5])) == {6, 8}
    assert set(banned_next(sequences, [5, 7])) == set()
    assert set(banned_next(sequences, [1, 5, 5, 5])) == {6, 5}
