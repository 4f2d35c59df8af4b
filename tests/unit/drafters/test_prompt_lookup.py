"""Prompt lookup against an implementation that is slow and obvious."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.api import NoiseKey, SessionContext
from drafters.errors import DrafterConfigError
from drafters.methods.prompt_lookup import Match, PromptLookup

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=40)
MATCHES: tuple[Match, ...] = ("recent", "earliest")


def context(token_ids: Sequence[int]) -> SessionContext:
    return SessionContext(tuple(token_ids), 1, NoiseKey(0, 0, 0.0))


def slow_draft(
    token_ids: Sequence[int], match: str, max_ngram: int, min_ngram: int, most: int
) -> tuple[list[int], int]:
    """Scan for the longest suffix; then copy token by token, from the draft, too, at the end."""
    length = len(token_ids)
    for ngram in range(max_ngram, min_ngram - 1, -1):
        suffix = list(token_ids[length - ngram :])
        starts = [
            start
            for start in range(length - ngram)
            if list(token_ids[start : start + ngram]) == suffix
        ]
        if ngram <= length and starts:
            start = starts[-1] if match == "recent" else starts[0]
            grown = list(token_ids)
            for step in range(most):
                grown.append(grown[start + ngram + step])
            return grown[length:], ngram
    return [], 0


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(TOKENS, min_size=1, max_size=5),
    match=st.sampled_from(MATCHES),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    most=st.integers(1, 12),
)
def test_equals_the_slow_search_however_the_tokens_came(
    pieces: list[list[int]], match: Match, sizes: tuple[int, int], most: int
) -> None:
    """AD-9: a session that was extended proposes what a fresh one does."""
    min_ngram, max_ngram = min(sizes), max(sizes)
    drafter = PromptLookup(max_ngram=max_ngram, min_ngram=min_ngram, match=match)
    so_far: list[int] = []
    for index, piece in enumerate(pieces):
        so_far += piece
        if index == 0:
            drafter.open("grown", context(piece))
        else:
            drafter.extend("grown", piece)
        drafter.open("fresh", context(so_far))
        grown, fresh = drafter.propose([("grown", most), ("fresh", most)])
        expected, ngram = slow_draft(so_far, match, max_ngram, min_ngram, most)
        assert list(grown.token_ids) == expected
        assert grown.score == ngram
        assert fresh == grown
        assert drafter.position("grown") == len(so_far)


def test_goes_on_with_the_period_where_the_context_ends() -> None:
    drafter = PromptLookup()
    drafter.open("s", context([9, 1, 2, 1, 2]))
    assert drafter.propose([("s", 5)])[0].token_ids == (1, 2, 1, 2, 1)


def test_recent_and_earliest_differ() -> None:
    token_ids = [1, 2, 7, 1, 2, 8, 1, 2]
    for match, first in zip(MATCHES, (8, 7), strict=True):
        drafter = PromptLookup(match=match)
        drafter.open("s", context(token_ids))
        assert drafter.propose([("s", 1)])[0].token_ids == (first,)


def test_a_long_context_drafts_in_well_under_a_millisecond() -> None:
    """SP-1: the cost of a draft does not grow with the context."""
    drafter = PromptLookup()
    drafter.open("s", context([(i * i) % 1009 for i in range(32_768)]))
    times = []
    for i in range(50):
        started = time.perf_counter()
        drafter.extend("s", [i % 7, i % 11])
        drafter.propose([("s", 8)])
        times.append(time.perf_counter() - started)
    assert sorted(times)[25] < 3e-4


@pytest.mark.parametrize(
    "params",
    [
        {"max_ngram": 0},
        {"min_ngram": 4},
        {"min_ngram": 0},
        {"max_tokens": 0},
        {"max_ngram": 2.0},
        {"max_ngram": True},
        {"match": "latest"},
    ],
)
def test_values_that_cannot_be_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(DrafterConfigError, match=r"^prompt_lookup: \w+ is "):
        PromptLookup(**params)  # type: ignore[arg-type]  # wrong on purpose


def test_every_parameter_is_in_the_version() -> None:
    variants = [
        PromptLookup(),
        PromptLookup(max_ngram=4),
        PromptLookup(min_ngram=2),
        PromptLookup(match="earliest"),
        PromptLookup(max_tokens=5),
    ]
    assert len({drafter.version for drafter in variants}) == len(variants)
