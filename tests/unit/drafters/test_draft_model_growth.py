"""Growth of trees and what their rows see, on made-up numbers."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drafters.api import Draft
from drafters.model_drafting.growth import Candidates, DraftGrowth
from drafters.model_drafting.session_cache import DraftSession
from models.batch import PackedBatch
from tests.unit.drafters.draft_models import GREEDY, TokenPath, paths

CPU = torch.device("cpu")
SIZES = st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4))


def candidates(seed: int, path: TokenPath, top_k: int) -> Candidates:
    """Made-up probabilities after a path, the same each time; equals among them."""
    rng = random.Random(f"{seed} {path}")
    weights = sorted((rng.randrange(1, 6) for _ in range(top_k)), reverse=True)
    return Candidates(
        rng.sample(range(20), top_k), [math.log(one / (sum(weights) + 1)) for one in weights]
    )


def grow(seed: int, top_k: int, sizes: tuple[int, int, int]) -> tuple[Draft, int]:
    growth = DraftGrowth(*sizes)
    row_paths: list[TokenPath] = []
    frontier: list[TokenPath] = [()]
    while growth.frontier:
        growth.expand([candidates(seed, path, top_k) for path in frontier])
        for row in range(len(row_paths), len(growth.row_tokens)):
            parent = growth.row_parents[row]
            above = row_paths[parent] if parent >= 0 else ()
            row_paths.append((*above, growth.row_tokens[row]))
        frontier = row_paths[len(row_paths) - len(growth.frontier) :]
    assert len(row_paths) <= growth.max_rows
    return growth.draft(), len(row_paths)


def slow_values(seed: int, top_k: int, sizes: tuple[int, int, int]) -> list[float]:
    most, beam, depth = sizes
    level: list[tuple[float, TokenPath]] = [(0.0, ())]
    values: list[float] = []
    for _ in range(depth):
        children = [
            (value + logprob, (*path, token))
            for value, path in level
            for token, logprob in zip(*candidates(seed, path, top_k), strict=True)
        ]
        values += [value for value, _ in children]
        level = sorted(children, key=lambda child: -child[0])[:beam]
    return sorted(values, reverse=True)[:most]


@given(seed=st.integers(0, 10**6), top_k=st.integers(1, 4), sizes=SIZES)
def test_leaves_nothing_out_that_would_be_drafted(
    seed: int, top_k: int, sizes: tuple[int, int, int]
) -> None:
    draft, num_rows = grow(seed, top_k, sizes)
    values = [value(seed, path, top_k) for path in paths(draft)]
    assert values == pytest.approx(slow_values(seed, top_k, sizes))
    assert draft.score == pytest.approx(sum(map(math.exp, values)))
    assert num_rows <= max(0, sizes[0] - 1) * sizes[2]


def value(seed: int, path: TokenPath, top_k: int) -> float:
    total = 0.0
    for depth, token in enumerate(path):
        found = candidates(seed, path[:depth], top_k)
        total += found.logprobs[found.token_ids.index(token)]
    return total


@given(seed=st.integers(0, 10**6), most=st.integers(1, 12))
def test_a_smaller_draft_is_the_beginning_of_a_larger_one(seed: int, most: int) -> None:
    small, _ = grow(seed, 3, (most, 3, 4))
    large, _ = grow(seed, 3, (12, 3, 4))
    prefix = large.prefix(most)
    assert (small.token_ids, small.parents) == (prefix.token_ids, prefix.parents)


def test_computes_only_what_has_a_place() -> None:
    assert grow(1, 4, (1, 4, 4))[1] == 0
    assert grow(1, 4, (2, 4, 4))[1] <= 1
    assert grow(1, 1, (5, 1, 5))[1] == 4  # a chain: all but the last


@given(
    data=st.data(),
    num_context=st.integers(1, 6),
    num_rows=st.integers(1, 7),
    window=st.sampled_from([None, 1, 2, 3, 5]),
)
def test_rows_see_what_they_see_when_the_whole_tree_is_computed_at_once(
    data: st.DataObject, num_context: int, num_rows: int, window: int | None
) -> None:
    parents = [data.draw(st.integers(-1, row - 1)) for row in range(num_rows)]
    num_new = data.draw(st.integers(1, num_rows))
    slots = list(range(num_context + num_rows))
    batch = PackedBatch()
    whole = batch.add(num_context - 1, [0] * (1 + num_rows), slots, True, tree=parents)
    batch.add(len(slots) - num_new, [0] * num_new, slots, needs_logits=True, tree=parents)
    part = batch.segments[1]
    assert part.positions() == whole.positions()[-num_new:]
    hidden = [one.mask(window, CPU, torch.float32) for one in (whole, part)]
    expected, found = (
        np.zeros((one.num_rows, len(slots))) if mask is None else mask.numpy()
        for one, mask in zip((whole, part), hidden, strict=True)
    )
    assert (found == expected[-num_new:]).all()
    assert batch.logit_rows() == list(range(batch.num_rows))


@pytest.mark.parametrize(
    ("came", "path"),
    [([], []), ([9], []), ([1], [0]), ([3, 5, 8], [1, 3]), ([3, 4], [1, 2]), ([3, 1], [1])],
)
def test_accepted_rows_are_found(came: list[int], path: list[int]) -> None:
    session = DraftSession([7, 7], GREEDY)
    session.num_cached = 2
    session.row_tokens, session.row_parents = [1, 3, 4, 5], [-1, -1, 1, 1]
    session.extend(came)
    assert session.take_accepted() == path
    assert session.num_cached == 2 + len(path)
    assert session.take_accepted() == []
