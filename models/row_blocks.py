"""Rows of logits in blocks: the few tokens that matter are found without touching the others.

A pass for the maximum of each block is several times cheaper than any pass that keeps an index or
sorts; what follows looks into the blocks that can matter. Blocks are those of the noise.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.noise import BLOCK_TOKENS

_LOWEST = np.finfo(np.float32).min


def block_maxima(logits: Tensor) -> Tensor:
    """Return the largest logit of each block, ``[num_rows, num_blocks]``.

    Args:
        logits: ``[num_rows, vocab_size]``; the last block may be short.
    """
    num_rows, vocab_size = logits.shape
    num_whole = vocab_size // BLOCK_TOKENS
    num_in_whole = num_whole * BLOCK_TOKENS
    whole = logits[:, :num_in_whole].reshape(num_rows, num_whole, BLOCK_TOKENS).amax(2)
    if num_in_whole == vocab_size:
        return whole
    return torch.cat([whole, logits[:, num_in_whole:].amax(1, keepdim=True)], dim=1)


def take_blocks(logits: Tensor, rows: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return token ids and logits of some blocks, each ``[num_taken, BLOCK_TOKENS]``.

    Past the end of the vocabulary the last token is repeated.

    Args:
        logits: ``[num_rows, vocab_size]``.
        rows: Row of each block, ``[num_taken]``.
        blocks: Its number, ``[num_taken]``.
    """
    within = torch.arange(BLOCK_TOKENS, device=logits.device)
    token_ids = (blocks[:, None] * BLOCK_TOKENS + within).clamp_(max=logits.shape[1] - 1)
    return token_ids, logits[rows[:, None], token_ids]


def likeliest_tokens(logits: Tensor) -> Tensor:
    """Return the token of each row's largest logit, the lowest id among equals, ``[num_rows]``.

    Args:
        logits: ``[num_rows, vocab_size]``.
    """
    rows = torch.arange(len(logits), device=logits.device)
    token_ids, values = take_blocks(logits, rows, block_maxima(logits).argmax(1))
    return token_ids[rows, values.argmax(1)]


def values_at(logits: Tensor, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the logits of some tokens of each row; ``-inf`` past the end of the vocabulary.

    Args:
        logits: ``[num_rows, vocab_size]``.
        token_ids: ``[num_rows, num_tokens]``.
    """
    last = logits.shape[1] - 1
    taken = torch.from_numpy(np.minimum(token_ids, last)).to(logits.device)
    values = logits.gather(1, taken).cpu().numpy()
    values[token_ids > last] = -np.inf
    return values


def tokens_reaching(
    logits: Tensor, floors: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return rows, ids and logits of the tokens that reach the floor of their block, in order.

    Impossible tokens reach none.

    Args:
        logits: ``[num_rows, vocab_size]``.
        floors: ``[num_rows, num_blocks]``.
    """
    num_rows, vocab_size = logits.shape
    needed = torch.from_numpy(np.maximum(floors, _LOWEST)).to(logits.device)[:, :, None]
    if vocab_size % BLOCK_TOKENS:
        each = needed.expand(-1, -1, BLOCK_TOKENS).reshape(num_rows, -1)[:, :vocab_size]
        is_reached = logits >= each
    else:
        is_reached = logits.reshape(num_rows, -1, BLOCK_TOKENS) >= needed
    places = np.flatnonzero(is_reached.cpu().numpy())
    values = logits.reshape(-1)[torch.from_numpy(places).to(logits.device)]
    rows, token_ids = np.divmod(places, vocab_size)
    return rows, token_ids, values.cpu().numpy()


class BlockedRow:
    """One row of logits, ``[vocab_size]``, and the maxima of its blocks."""

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits
        self._maxima: NDArray[np.float32] = block_maxima(logits[None])[0].cpu().numpy()

    @property
    def largest(self) -> float:
        """The largest logit."""
        return float(self._maxima.max())

    @property
    def vocab_size(self) -> int:
        """How many logits the row has."""
        return len(self._logits)

    def floor_of_top(self, count: int) -> float:
        """Return a number that at least ``count`` logits reach, if there are so many."""
        values = self._maxima if count <= len(self._maxima) else self._logits.cpu().numpy()
        count = min(count, len(values))
        return float(np.partition(values, -count)[-count])

    def tokens_from(self, floor: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return ids and logits of all tokens from ``floor`` up, by id; never impossible ones."""
        floor = max(floor, float(_LOWEST))
        blocks = np.flatnonzero(self._maxima >= floor)
        if 2 * len(blocks) > len(self._maxima):
            values = self._logits.cpu().numpy()
            token_ids = np.flatnonzero(values >= floor)
            return token_ids, values[token_ids].astype(np.float64)
        taken = torch.from_numpy(blocks).to(self._logits.device)
        found = take_blocks(self._logits[None], torch.zeros_like(taken), taken)
        token_ids, values = (part.cpu().numpy().ravel() for part in found)
        is_kept = values >= floor
        token_ids, values = token_ids[is_kept], values[is_kept]
        if len(token_ids) > 1 and token_ids[-1] == token_ids[-2]:  # the last token, repeated
            token_ids, first = np.unique(token_ids, return_index=True)
            values = values[first]
        return token_ids, values.astype(np.float64)
