from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from replicas.api import SamplingParams
from replicas.engine.logits import apply_bias_and_bans, apply_penalties, truncate
from replicas.engine.sampler import Sampler

INF = float("inf")


def params(**changes: object) -> SamplingParams:
    return SamplingParams(max_tokens=10, **changes)  # type: ignore[arg-type]  # a test's shorthand


def kept(logits: torch.Tensor) -> list[int]:
    return torch.nonzero(logits > -INF).flatten().tolist()


def test_penalties_touch_what_was_emitted() -> None:
    logits = torch.tensor([1.0, 1.0, -1.0, 1.0])
    result = apply_penalties(
        logits,
        params(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0),
        prompt_token_ids={2},
        reply_counts={1: 2},
    )
    assert result.tolist() == [1.0, 0.5 - 1.0, -2.0, 1.0]
    assert logits.tolist() == [1.0, 1.0, -1.0, 1.0]


def test_bias_is_added_and_banned_tokens_never_come() -> None:
    result = apply_bias_and_bans(torch.zeros(3), {0: 2.0}, {1})
    assert result.tolist() == [2.0, -INF, 0.0]


def test_top_k_breaks_ties_by_the_lowest_id() -> None:
    assert kept(truncate(torch.tensor([1.0, 3.0, 3.0, 3.0]), params(top_k=2))) == [1, 2]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    assert kept(truncate(logits, params(top_p=0.75))) == [0, 1]
    assert kept(truncate(logits, params(top_p=0.85))) == [0, 1, 2]
    assert kept(truncate(logits, params(top_p=0.01))) == [0]


def test_min_p_is_relative_to_the_likeliest() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    assert kept(truncate(logits, params(min_p=0.25))) == [0, 1, 2]


@given(
    st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=30),
    st.integers(0, 30),
    st.floats(0.01, 1.0),
    st.floats(0, 1),
)
def test_truncation_keeps_the_likeliest_and_never_changes_a_logit(
    values: list[float], top_k: int, top_p: float, min_p: float
) -> None:
    logits = torch.tensor(values)
    result = truncate(logits, params(top_k=top_k, top_p=top_p, min_p=min_p))
    ids = kept(result)
    assert int(torch.argmax(logits)) in ids
    assert result[ids].tolist() == logits[ids].tolist()
    assert len(ids) <= (top_k or len(values))
    if len(ids) < len(values):
        dropped = [i for i in range(len(values)) if i not in ids]
        assert logits[ids].min() >= logits[dropped].max()


def sampler(seed: int = 1, **changes: object) -> Sampler:
    return Sampler(params(**changes), seed, 0, [0, 1], [2], torch.arange(4))


def test_greedy_is_the_largest_logit_and_the_lowest_id_among_equals() -> None:
    assert sampler(temperature=0).token(torch.tensor([0.0, 5.0, 5.0, 1.0]), 7) == 1


def test_a_reply_may_not_end_before_min_tokens() -> None:
    one = sampler(temperature=0, min_tokens=1)
    logits = torch.tensor([0.0, 1.0, 5.0, 2.0])
    assert not one.is_plain_greedy
    assert one.token(logits, 2) == 3
    one.emit(3)
    assert one.is_plain_greedy
    assert one.token(logits, 3) == 2


def test_penalties_see_the_tokens_emitted_so_far() -> None:
    one = sampler(temperature=0, frequency_penalty=2.0)
    logits = torch.tensor([1.0, 1.5, 0.0, 1.2])
    tokens = []
    for position in range(4):
        tokens.append(one.token(logits, position))
        one.emit(tokens[-1])
    assert tokens == [1, 3, 0, 2]


def test_a_draw_depends_on_seed_and_position_only() -> None:
    logits = torch.zeros(4)
    draws = [sampler(seed=5, temperature=1.0).token(logits, position) for position in range(50)]
    again = [sampler(seed=5, temperature=1.0).token(logits, position) for position in range(50)]
    other = [sampler(seed=6, temperature=1.0).token(logits, position) for position in range(50)]
    assert draws == again
    assert draws != other


def test_logprobs_are_the_targets() -> None:
    one = sampler(temperature=0.5, logprobs=2)
    logits = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    report = one.logprobs(logits, 1)
    assert report.logprob == pytest.approx(-1.6094379, rel=1e-5)
    assert [token for token, _ in report.top] == [3, 2]
