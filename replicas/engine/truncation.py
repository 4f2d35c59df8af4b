"""Which tokens top-k, top-p and min-p leave, without sorting the vocabulary.

Each of the three keeps a beginning of the tokens ordered by logit, equal ones by id. So it is
enough to order those from some logit up, as long as what is kept ends among them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.row_blocks import BlockedRow, likeliest_tokens
from replicas.api import SamplingParams

_FIRST_BLOCKS = 64
"""Top-p mostly ends within this many blocks' worth of likeliest tokens; else all are looked at."""

Tokens = tuple[NDArray[np.int64], NDArray[np.float64]]


def truncates(params: SamplingParams) -> bool:
    """Return whether any token may be left out."""
    return params.top_k > 0 or params.top_p < 1 or params.min_p > 0


def kept_tokens(logits: Tensor, params: SamplingParams) -> Tokens:
    """Return the tokens that top-k, then top-p, then min-p leave.

    Top-p (Holtzman et al. 2020, arXiv:1904.09751) keeps the smallest set whose probability, among
    the ``top_k``, reaches it; min-p (Nguyen et al. 2024, arXiv:2407.01082) is relative to the
    likeliest token. Ties fall to the lowest id. The likeliest token always stays.

    Args:
        logits: ``[vocab_size]``, with penalties, bias and bans.
        params: The request's parameters; the temperature is above 0.

    Returns:
        Token ids, ascending, and their logits less the largest, divided by the temperature.
    """
    row = BlockedRow(logits)
    if not math.isfinite(row.largest):  # a broken model's row: anything but an exception
        return likeliest_tokens(logits[None]).cpu().numpy(), np.zeros(1)
    tokens = _Scaled(row, logits, params.temperature)
    lowest = math.log(params.min_p) if params.min_p > 0 else float("-inf")
    if params.top_k:
        token_ids, scaled = _top_k(tokens, params.top_k, params.top_p)
    elif params.top_p < 1:
        token_ids, scaled = _top_p(tokens, params.top_p, lowest)
    else:
        token_ids, scaled = tokens.from_(lowest)
    is_kept = scaled >= lowest
    order = np.argsort(token_ids[is_kept])
    return token_ids[is_kept][order], scaled[is_kept][order]


class _Scaled:
    """A row's logits less the largest, divided by the temperature."""

    def __init__(self, row: BlockedRow, logits: Tensor, temperature: float) -> None:
        self._row = row
        self._logits = logits
        self._temperature = temperature

    def from_(self, lowest: float) -> Tokens:
        """Return all tokens from ``lowest`` up, likeliest first."""
        row = self._row
        token_ids, values = row.tokens_from(row.largest + self._temperature * lowest)
        order = np.argsort(-values, kind="stable")
        return token_ids[order], (values[order] - row.largest) / self._temperature

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return self._row.vocab_size

    def of_top(self, count: int) -> float:
        """Return a number that at least ``count`` tokens reach, if there are so many."""
        return (self._row.floor_of_top(count) - self._row.largest) / self._temperature

    def total(self) -> float:
        """Return the sum of all tokens' weights, where the likeliest weighs 1."""
        weights = (self._logits - self._row.largest).div_(self._temperature).exp_()
        return float(weights.sum())


def _top_k(tokens: _Scaled, top_k: int, top_p: float) -> Tokens:
    token_ids, scaled = tokens.from_(tokens.of_top(top_k))
    weights = np.exp(scaled[:top_k])
    count = _nucleus_size(weights, top_p, weights.sum())
    return token_ids[:count], scaled[:count]


def _top_p(tokens: _Scaled, top_p: float, lowest: float) -> Tokens:
    """Return the tokens, likeliest first, of top-p over the whole vocabulary from ``lowest`` up."""
    total = tokens.total()
    # All tokens that weigh less than this weigh less together than what top-p may leave out.
    least = math.log(total * (1 - top_p) / tokens.vocab_size)
    for floor in (tokens.of_top(_FIRST_BLOCKS), least):
        token_ids, scaled = tokens.from_(max(floor, lowest))
        weights = np.exp(scaled)
        if weights.sum() >= top_p * total or floor <= lowest:
            break
    count = _nucleus_size(weights, top_p, total)
    return token_ids[:count], scaled[:count]


def _nucleus_size(weights: NDArray[np.float64], top_p: float, total: float) -> int:
    """Return how many tokens, likeliest first, top-p keeps: those with less than it before them."""
    if top_p >= 1:
        return len(weights)
    before = np.cumsum(weights) - weights
    return max(1, int(np.searchsorted(before, top_p * total)))
