"""Draws from rows of logits with keyed noise, looking at few tokens of each.

The winner of a row is the largest sum of scaled logit and noise. The noise makes known, of every
block of tokens, its largest noise and which token has it. The best of these tokens' sums is a sum
to beat; a token whose logit and its block's largest noise do not reach it cannot win. So only the
others' own noise is made. The result is that of the sums over the whole vocabulary, for any logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.noise import (
    BLOCK_TOKENS,
    Arrivals,
    first_arrivals,
    gumbel_noise,
    key_array,
)
from models.row_blocks import likeliest_tokens, tokens_reaching, values_at

LOWEST_TEMPERATURE = 1e-5
"""Below it a request is greedy: its likeliest token would be drawn all but always."""

_SLACK = 1e-5
"""Relative; more than rounding to 32 bits can add to what a logit must reach."""

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def draw_tokens(logits: Tensor, keys: Sequence[int], temperatures: Sequence[float]) -> list[int]:
    """Draw one token from the softmax of each row divided by its temperature.

    Args:
        logits: ``[num_rows, vocab_size]``, processed.
        keys: Of each row, from ``noise_key``.
        temperatures: Of each row; 0 takes the largest logit.

    Returns:
        The tokens, the lowest id among equals; a row's does not depend on which others are drawn
        with it.
    """
    tokens: dict[int, int] = {}
    if any(temperatures):
        race = _Race(logits, key_array(keys), np.array(temperatures, dtype=np.float64))
        tokens = race.winners()
    others = [row for row in range(len(logits)) if row not in tokens]
    if others:  # greedy ones, and those of a broken model
        rows = logits if len(others) == len(logits) else logits[others]
        tokens |= zip(others, likeliest_tokens(rows).tolist(), strict=True)
    return [tokens[row] for row in range(len(logits))]


class _Race:
    """The sums of scaled logits and noise of some rows; those with temperature 0 take no part."""

    def __init__(self, logits: Tensor, keys: NDArray[np.uint64], temperatures: Floats) -> None:
        self._logits = logits
        self._keys = keys
        self._temperatures = temperatures
        self._arrivals = first_arrivals(keys, -(-logits.shape[1] // BLOCK_TOKENS))

    def winners(self) -> dict[int, int]:
        """Return the token with the largest sum of each row, the lowest id among equals."""
        rows, token_ids, values = tokens_reaching(self._logits, self._floors())
        sums = self._sums(rows, token_ids, values)
        starts = np.searchsorted(rows, np.arange(len(self._keys) + 1)).tolist()
        return {
            row: int(token_ids[start + sums[start:end].argmax()])
            for row, (start, end) in enumerate(pairwise(starts))
            if start < end
        }

    def _floors(self) -> NDArray[np.float32]:
        """Return what a logit must reach, by row and block, for its sum to be the largest."""
        times, places = self._arrivals
        taken_off = np.log(times)  # the largest noise of each block, negative
        scale = self._temperatures[:, None]
        known = values_at(self._logits, np.arange(times.shape[1]) * BLOCK_TOKENS + places)
        with np.errstate(all="ignore"):  # greedy rows, a broken model's rows
            to_beat = (known / scale - taken_off).max(1, keepdims=True)
            to_beat -= _SLACK * (1 + np.abs(to_beat))
            floors = (to_beat + taken_off) * scale
        floors[self._temperatures <= 0] = np.inf
        rounded: NDArray[np.float32] = floors.astype(np.float32)
        return rounded

    def _sums(self, rows: Ids, token_ids: Ids, values: NDArray[np.float32]) -> Floats:
        times, places = self._arrivals
        blocks = token_ids // BLOCK_TOKENS
        arrivals = Arrivals(times[rows, blocks], places[rows, blocks])
        noise = gumbel_noise(self._keys[rows], token_ids, arrivals)
        return values / self._temperatures[rows] + noise
