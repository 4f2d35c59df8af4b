from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.batch import PackedBatch

CPU = torch.device("cpu")

TOKENS = [9, 1, 2, 3, 4]
TREE = (-1, -1, 0, 1)


def test_siblings_share_a_position() -> None:
    batch = PackedBatch()
    segment = batch.add(3, TOKENS, list(range(8)), needs_logits=True, tree=TREE)
    assert segment.positions() == [3, 4, 4, 5, 5]
    assert batch.logit_rows() == [0, 1, 2, 3, 4]
    assert batch.new_slots() == [3, 4, 5, 6, 7]


def test_a_node_sees_its_ancestors_only() -> None:
    batch = PackedBatch()
    segment = batch.add(1, TOKENS, list(range(6)), needs_logits=True, tree=TREE)
    mask = segment.mask(None, CPU, torch.float32)
    assert mask is not None
    expected = [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 0, 1, 0, 1],
    ]
    assert (mask == 0).int().tolist() == expected


def test_a_prefill_chunk_that_is_not_the_last_wants_no_logits() -> None:
    batch = PackedBatch()
    batch.add(0, [1, 2, 3], [0, 1, 2], needs_logits=False)
    batch.add(4, [5], [10, 11, 12, 13, 14], needs_logits=True)
    assert batch.logit_rows() == [3]
    assert batch.input_ids() == [1, 2, 3, 5]
    assert batch.positions() == [0, 1, 2, 4]
    assert batch.num_context == 4


def test_a_single_row_needs_no_mask_and_a_run_of_slots_is_a_slice() -> None:
    batch = PackedBatch()
    segment = batch.add(2, [7], [4, 5, 6], needs_logits=True)
    assert segment.mask(None, CPU, torch.float32) is None
    assert segment.context(CPU) == slice(4, 7)
    scattered = batch.add(2, [7], [4, 6, 5], needs_logits=True)
    context = scattered.context(CPU)
    assert isinstance(context, torch.Tensor)
    assert context.tolist() == [4, 6, 5]


@given(st.integers(0, 9), st.integers(1, 5), st.integers(0, 4), st.integers(1, 6))
def test_a_window_hides_what_is_too_far_back(
    num_cached: int, num_committed: int, gamma: int, window: int
) -> None:
    total = num_cached + num_committed + gamma
    batch = PackedBatch()
    segment = batch.add(
        num_cached,
        [1] * (num_committed + gamma),
        list(range(total)),
        needs_logits=True,
        tree=range(-1, gamma - 1),
    )
    mask = segment.mask(window, CPU, torch.float32)
    rows, keys = np.arange(num_cached, total), np.arange(total)
    expected = (keys[None] <= rows[:, None]) & (rows[:, None] - keys[None] < window)
    actual = np.ones_like(expected) if mask is None else (mask == 0).numpy()
    assert (actual == expected).all()
