"""Drawing looks at few tokens; the result is that of looking at all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.drawing import draw_tokens
from models.noise import gumbel_noise, key_array, noise_key
from models.row_blocks import (
    BlockedRow,
    block_maxima,
    likeliest_tokens,
    tokens_reaching,
    values_at,
)

VOCABS = st.sampled_from([1, 2, 5, 127, 128, 129, 700, 1024, 3001])


def drawn_plainly(row: torch.Tensor, key: int, temperature: float) -> int:
    """Return the token that a look at the whole vocabulary gives."""
    values = row.double().numpy()
    if temperature:
        noise = gumbel_noise(key_array([key]), np.arange(len(row)))
        values = values / temperature + noise
    return int(np.argmax(values))


@st.composite
def logit_rows(draw: st.DrawFn, num_rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    shape = (num_rows, draw(VOCABS))
    rows = draw(st.sampled_from([0.0, 0.5, 3.0, 30.0])) * torch.randn(shape, generator=generator)
    if draw(st.booleans()):
        rows = rows.round()  # ties
    is_banned = torch.rand(shape, generator=generator) < draw(st.sampled_from([0, 0.5, 0.999]))
    is_banned[:, draw(st.integers(0, shape[1] - 1))] = False
    return rows.masked_fill(is_banned, float("-inf"))


@settings(max_examples=150)
@given(logit_rows(4), st.integers(0, 10**6))
def test_a_draw_is_that_of_the_whole_vocabulary(rows: torch.Tensor, seed: int) -> None:
    keys = [noise_key(seed, 0, position) for position in range(4)]
    temperatures = [1.0, 0.0, 0.05, 1.9]
    expected = [drawn_plainly(*each) for each in zip(rows, keys, temperatures, strict=True)]
    assert draw_tokens(rows, keys, temperatures) == expected
    alone = [
        draw_tokens(rows[i : i + 1], keys[i : i + 1], temperatures[i : i + 1]) for i in range(4)
    ]
    assert alone == [[token] for token in expected]


@given(logit_rows(3))
def test_the_likeliest_token_is_the_lowest_of_equals(rows: torch.Tensor) -> None:
    expected = rows.numpy().argmax(1).tolist()
    assert likeliest_tokens(rows).tolist() == expected
    assert draw_tokens(rows, [0, 1, 2], [0.0] * 3) == expected


@given(logit_rows(2), st.integers(1, 400))
def test_a_floor_is_reached_by_enough_tokens(rows: torch.Tensor, count: int) -> None:
    values = rows[1].numpy()
    row = BlockedRow(rows[1])
    floor = row.floor_of_top(count)
    assert (values >= floor).sum() >= min(count, len(values))
    assert row.largest == values.max()
    token_ids, found = row.tokens_from(floor)
    expected = np.flatnonzero((values >= floor) & (values > float("-inf")))
    assert token_ids.tolist() == expected.tolist()
    assert found.tolist() == values[expected].tolist()


def test_maxima_of_blocks() -> None:
    rows = torch.arange(300.0)[None].repeat(2, 1)
    assert block_maxima(rows).tolist() == [[127, 255, 299]] * 2
    assert block_maxima(rows[:, :100]).tolist() == [[99]] * 2
    assert block_maxima(rows[:, :256]).tolist() == [[127, 255]] * 2


@pytest.mark.parametrize("vocab", [100, 256, 300])
def test_tokens_that_reach_their_blocks_floor(vocab: int) -> None:
    rows = torch.full((2, vocab), float("-inf"))
    rows[0, 3], rows[1, 5], rows[1, vocab - 1] = 1.0, 2.0, 3.0
    floors = np.full((2, -(-vocab // 128)), float("-inf"), dtype=np.float32)
    reached = tokens_reaching(rows, floors)
    assert [part.tolist() for part in reached] == [[0, 1, 1], [3, 5, vocab - 1], [1, 2, 3]]
    floors[1, -1] = 3.0
    floors[0, 0] = 1.5
    assert tokens_reaching(rows, floors)[1].tolist()[-1] == vocab - 1
    assert 3 not in tokens_reaching(rows, floors)[1]


def test_values_past_the_end_of_the_vocabulary_are_impossible() -> None:
    values = values_at(torch.arange(6.0).reshape(2, 3), np.array([[0, 2, 5], [1, 3, 2]]))
    assert values.tolist() == [[0, 2, float("-inf")], [4, float("-inf"), 5]]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_row_raises_nothing(value: float) -> None:
    rows = torch.zeros(2, 300)
    rows[0, 280] = value
    tokens = draw_tokens(rows[:1], [1], [1.0]) + draw_tokens(rows[1:], [2], [1.0])
    assert draw_tokens(rows[1:], [2], [1.0]) == tokens[1:]
    assert 0 <= tokens[0] < 300
