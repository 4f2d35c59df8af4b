"""Computed in groups, a row's attention is what it is alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.attention import Scoring, attend_rows, attend_segments
from models.batch import PackedBatch
from models.grouping import grouped

HEADS, KV_HEADS, DIM, SLOTS = 6, 2, 8, 4096
CPU = torch.device("cpu")


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5), st.integers(0, 4)), min_size=1),
    st.sampled_from([None, 5]),
    st.sampled_from([None, 2.0]),
    st.booleans(),
)
def test_groups_change_nothing(
    shapes: list[tuple[int, int, int]], window: int | None, softcap: float | None, has_sinks: bool
) -> None:
    torch.manual_seed(0)
    batch, order = PackedBatch(), torch.randperm(SLOTS).tolist()
    for num_cached, num_committed, num_nodes in shapes:
        total = num_cached + num_committed + num_nodes
        slots, order = order[:total], order[total:]
        tree = [min(node - 1, 0) if node % 2 else -1 for node in range(num_nodes)]
        batch.add(num_cached, [1] * (num_committed + num_nodes), slots, True, tree=tree)
    query = torch.randn(HEADS, batch.num_rows, DIM)
    keys, values = torch.randn(SLOTS, KV_HEADS, DIM), torch.randn(SLOTS, KV_HEADS, DIM + 2)
    sinks = torch.randn(HEADS) if has_sinks else None
    scoring = Scoring(0.3, softcap, sinks)
    together = attend_segments(query, keys, values, batch, window, scoring)
    alone = attend_rows(query, keys, values, batch, window, scoring)
    assert together.shape == (batch.num_rows, HEADS, DIM + 2)
    assert torch.allclose(together, alone, atol=1e-5)


def test_what_is_alike_goes_together() -> None:
    batch = PackedBatch()
    for index, (num_cached, num_rows) in enumerate([(70, 1), (90, 1), (9, 1), (80, 3), (100, 1)]):
        first = 500 * index
        batch.add(
            num_cached, [1] * num_rows, list(range(first, first + num_cached + num_rows)), True
        )
    batch.add(0, [1] * 40, list(range(3000, 3040)), needs_logits=True)
    batch.add(0, [1] * 40, list(range(3100, 3140)), needs_logits=True)
    groups = grouped(batch, CPU)
    assert [(group.size, group.num_rows) for group in groups] == [
        (3, 1),
        (1, 1),
        (1, 3),
        (1, 40),
        (1, 40),
    ]
    assert grouped(batch, CPU) is groups


@pytest.mark.parametrize("share", [1, 3])
def test_equal_contexts_of_single_rows_need_no_mask(share: int) -> None:
    batch = PackedBatch()
    batch.add(3, [1], [0, 1, 2, 3], needs_logits=True)
    batch.add(3, [1], [10, 11, 12, 13], needs_logits=True)
    (group,) = grouped(batch, CPU)
    assert group.mask(None, CPU, torch.float32, share) is None
