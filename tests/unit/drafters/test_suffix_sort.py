"""Sorted suffixes against Python's own sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.datastore.suffix_sort import sorted_suffixes


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@given(
    documents=st.lists(st.lists(st.integers(0, 2), max_size=40), min_size=1, max_size=4),
    num_own=st.integers(0, 60),
    depth=st.integers(1, 20),
)
def test_equals_a_plain_sort(
    dtype: type[np.unsignedinteger], documents: list[list[int]], num_own: int, depth: int
) -> None:
    separator = int(np.iinfo(dtype).max)
    tokens = [token for document in documents for token in [*document, separator]]
    found = sorted_suffixes(np.array(tokens, dtype), num_own, separator, depth).tolist()
    own = [at for at, token in enumerate(tokens[:num_own]) if token != separator]
    assert sorted(found) == own

    def start(at: int) -> list[int]:
        until = tokens.index(separator, at) + 1
        return tokens[at : min(until, at + depth)]

    assert [start(at) for at in found] == sorted(start(at) for at in own)


def test_long_repeats_are_sorted_no_deeper_than_asked() -> None:
    tokens = np.full(200_000, 7, np.uint16)
    assert len(sorted_suffixes(tokens, len(tokens), 65_535, 32)) == 200_000
