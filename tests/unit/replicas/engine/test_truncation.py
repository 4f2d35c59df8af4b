from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from replicas.api import SamplingParams
from replicas.engine.truncation import kept_tokens, truncates


def params(**changes: object) -> SamplingParams:
    return SamplingParams(max_tokens=10, **changes)  # type: ignore[arg-type]  # a test's shorthand


def kept(logits: torch.Tensor, **changes: object) -> list[int]:
    token_ids, _ = kept_tokens(logits, params(**changes))
    return [int(token) for token in token_ids]


def logs(*probabilities: float) -> torch.Tensor:
    return torch.log(torch.tensor(probabilities))


def test_top_k_breaks_ties_by_the_lowest_id() -> None:
    assert kept(torch.tensor([1.0, 3.0, 3.0, 3.0]), top_k=2) == [1, 2]
    assert kept(torch.zeros(1000), top_k=3) == [0, 1, 2]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = logs(0.5, 0.3, 0.15, 0.05)
    assert kept(logits, top_p=0.75) == [0, 1]
    assert kept(logits, top_p=0.85) == [0, 1, 2]
    assert kept(logits, top_p=0.01) == [0]
    assert kept(torch.zeros(4), top_p=0.6) == [0, 1, 2]


def test_top_p_is_taken_after_temperature_and_among_the_top_k() -> None:
    logits = logs(0.5, 0.3, 0.15, 0.05)
    assert kept(logits, top_p=0.6, temperature=0.2) == [0]
    assert kept(logits, top_p=0.6, top_k=2) == [0]  # of the two, the first has 0.625


def test_min_p_is_relative_to_the_likeliest() -> None:
    logits = logs(0.5, 0.3, 0.15, 0.05)
    assert kept(logits, min_p=0.25) == [0, 1, 2]
    assert kept(logits, min_p=1.0) == [0]
    assert kept(logits, min_p=0.25, temperature=3.0) == [0, 1, 2, 3]


def test_impossible_tokens_are_never_kept() -> None:
    logits = torch.full((700,), float("-inf"))
    logits[[3, 650]] = torch.tensor([1.0, 2.0])
    for changes in ({"top_k": 50}, {"top_k": 500}, {"top_p": 0.999}, {"min_p": 0.01}):
        assert kept(logits, **changes) == [3, 650]


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_broken_row_gives_one_token(value: float) -> None:
    assert len(kept(torch.full((300,), value), top_p=0.9)) == 1


def test_nothing_is_left_out_unless_asked_for() -> None:
    assert not truncates(params())
    assert truncates(params(top_k=5))
    assert truncates(params(top_p=0.99))
    assert truncates(params(min_p=0.1))


def kept_plainly(logits: torch.Tensor, params: SamplingParams) -> tuple[list[int], float]:
    """Return what sorting all tokens keeps, and how near to a limit the nearest token is."""
    values = logits.double().numpy() / params.temperature
    order = np.argsort(-values, kind="stable")
    order = order[: params.top_k or len(order)]
    weights = np.exp(values[order] - values.max())
    shares = weights / weights.sum()
    before = np.cumsum(shares) - shares
    keep = (before < params.top_p) if params.top_p < 1 else np.ones_like(before, dtype=bool)
    keep[0] = True
    near = np.abs(before - params.top_p).min() if params.top_p < 1 else 1.0
    if params.min_p > 0:
        keep &= weights >= params.min_p
        near = min(near, np.abs(weights / params.min_p - 1).min())
    return sorted(order[keep].tolist()), float(near)


@settings(max_examples=200)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 3, 300, 2000]),
    st.sampled_from([0.0, 0.1, 2.0, 6.0]),
    st.booleans(),
    st.sampled_from([0, 1, 5, 40, 700]),
    st.sampled_from([0.02, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.03, 0.5, 1.0]),
    st.sampled_from([0.3, 1.0, 2.0]),
)
def test_what_is_kept_is_what_sorting_all_tokens_keeps(
    seed: int,
    vocab: int,
    spread: float,
    has_ties: bool,
    top_k: int,
    top_p: float,
    min_p: float,
    temperature: float,
) -> None:
    logits = spread * torch.randn(vocab, generator=torch.Generator().manual_seed(seed))
    if has_ties:
        logits = logits.round()
    given_params = params(top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature)
    expected, near = kept_plainly(logits, given_params)
    token_ids, scaled = kept_tokens(logits, given_params)
    if near > 1e-6:  # closer to a limit either is right, as either is rounded
        assert token_ids.tolist() == expected
    likeliest = int(torch.argmax(logits))
    assert likeliest in token_ids
    assert scaled[list(token_ids).index(likeliest)] == 0
    differences = scaled * temperature - (logits[token_ids] - logits.max()).numpy()
    assert math.isclose(float(np.abs(differences).max()), 0, abs_tol=1e-5)
