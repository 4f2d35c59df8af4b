"""Keyed Gumbel noise: the same draw for the same request, position and token, everywhere.

The target's token at a position is the argmax of (processed logit / temperature + noise) over the
vocabulary, which is a draw from the softmax (Gumbel-max). The noise is a counter-based hash of
(seed, choice index, absolute position, token id): it needs no state, is the same on every replica
and device, and neither drafts nor batch shapes touch it, so speculation cannot change a sampled
reply.

It is made so that the largest noise of a block of tokens is known without looking into the block.
As a race, Gumbel noise is ``-log`` of an exponential arrival time. The first of a block's ``n``
arrivals is exponential with rate ``n``, it is equally likely to be any of them, and by lack of
memory the others arrive after it as if the race had begun there (Rényi 1953). So one hash a block
gives the first arrival and whose it is, and one hash a token how much later the token comes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 256
"""Tokens in a block: ids that differ in their last eight bits only."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_OF_BLOCKS = np.uint64(0xD1B54A32D192ED03)  # sets the hashes of blocks apart from those of tokens


def _mix(value: int) -> int:
    """Finish a splitmix64 hash (Steele, Lea and Flood 2014) of one 64-bit word."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Do what ``_mix`` does to many words at once."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(_MIX_1)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(_MIX_2)
    return words ^ (words >> np.uint64(31))


def noise_key(seed: int, choice_index: int, position: int) -> int:
    """Return the 64-bit key of one position's noise."""
    key = 0
    for word in (seed, choice_index, position):
        key = _mix(key + _GOLDEN + (word & _MASK))
    return key


def key_array(keys: Sequence[int]) -> NDArray[np.uint64]:
    """Return keys as the other functions take them, ``[num_keys]``."""
    return np.array(keys, dtype=np.uint64)


def _hashed(keys: NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.uint64]:
    return _mixed(keys + (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN))


def _exponential(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return unit exponential numbers from the upper 52 bits of each word, none 0 or infinite."""
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return -np.log(uniform)


def _first_arrivals(
    keys: NDArray[np.uint64], blocks: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return when the first token of each block arrives, and its place in the block."""
    words = _hashed(_mixed(keys ^ _OF_BLOCKS), blocks)
    place = (words % np.uint64(BLOCK_TOKENS)).astype(np.int64)
    return _exponential(words) / BLOCK_TOKENS, place


def largest_noise(keys: NDArray[np.uint64], blocks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the largest noise of each block's tokens.

    Args:
        keys: As ``key_array`` makes them, any shape that broadcasts with ``blocks``.
        blocks: Numbers of blocks; block ``b`` holds the tokens from ``b * BLOCK_TOKENS`` on.
    """
    return -np.log(_first_arrivals(keys, blocks)[0])


def gumbel_noise(
    keys: NDArray[np.uint64],
    token_ids: NDArray[np.int64],
    blocks: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return standard Gumbel noise for each token id, independent for different keys and tokens.

    Args:
        keys: As ``key_array`` makes them, any shape that broadcasts with ``token_ids``.
        token_ids: Any shape.
        blocks: Their blocks, where one holds for many; in a shape that broadcasts.
    """
    if blocks is None:
        blocks = token_ids // BLOCK_TOKENS
    first, place = _first_arrivals(keys, blocks)
    later = _exponential(_hashed(keys, token_ids))
    is_first = token_ids % BLOCK_TOKENS == place
    return -np.log(np.where(is_first, first, first + later))
