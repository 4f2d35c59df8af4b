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
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 128
"""Tokens in a block: ids that differ in their last seven bits only."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB

# The same as numbers of 64 bits, made once: drawing is many small operations.
_TOKEN_STEP = np.uint64(_GOLDEN)
_BLOCK_STEP = np.uint64(0xD1342543DE82EF95)
_FACTOR_1, _FACTOR_2 = np.uint64(_MIX_1), np.uint64(_MIX_2)
_SHIFTS = tuple(map(np.uint64, (30, 27, 31)))
_TO_52_BITS = np.uint64(12)
_WITHIN = np.uint64(BLOCK_TOKENS - 1)

Words = NDArray[np.uint64]


def _mix(value: int) -> int:
    """Finish a splitmix64 hash (Steele, Lea and Flood 2014) of one 64-bit word."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def _mixed(words: Words) -> Words:
    """Do what ``_mix`` does to many words at once, in their place."""
    words ^= words >> _SHIFTS[0]
    words *= _FACTOR_1
    words ^= words >> _SHIFTS[1]
    words *= _FACTOR_2
    words ^= words >> _SHIFTS[2]
    return words


def noise_key(seed: int, choice_index: int, position: int) -> int:
    """Return the 64-bit key of one position's noise."""
    key = 0
    for word in (seed, choice_index, position):
        key = _mix(key + _GOLDEN + (word & _MASK))
    return key


def key_array(keys: Sequence[int]) -> Words:
    """Return keys as the other functions take them, ``[num_keys]``."""
    return np.array(keys, dtype=np.uint64)


def _exponential(words: Words, rate: int = 1) -> NDArray[np.float64]:
    """Return exponential numbers from the upper 52 bits of each word, none 0 or infinite."""
    uniform = (words >> _TO_52_BITS).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-52
    return np.log(uniform) * (-1 / rate)


class Arrivals(NamedTuple):
    """The first arrivals of blocks.

    Attributes:
        times: When. The largest noise of a block is ``-log`` of it.
        places: Of which token, counted from the start of its block.
    """

    times: NDArray[np.float64]
    places: NDArray[np.int64]


def _first_arrivals(keys: Words, block_steps: Words) -> Arrivals:
    words = _mixed(keys + block_steps)
    places = (words & _WITHIN).view(np.int64)
    return Arrivals(_exponential(words, rate=BLOCK_TOKENS), places)


@lru_cache(maxsize=8)
def _block_steps(num_blocks: int) -> Words:
    return np.arange(1, num_blocks + 1, dtype=np.uint64) * _BLOCK_STEP


def first_arrivals(keys: Words, num_blocks: int) -> Arrivals:
    """Return the first arrivals of blocks 0, 1, ..., ``[num_keys, num_blocks]``.

    Block ``b`` starts at token ``b * BLOCK_TOKENS``.

    Args:
        keys: As ``key_array`` makes them, ``[num_keys]``.
        num_blocks: How many blocks.
    """
    return _first_arrivals(keys[:, None], _block_steps(num_blocks))


def gumbel_noise(
    keys: Words, token_ids: NDArray[np.int64], arrivals: Arrivals | None = None
) -> NDArray[np.float64]:
    """Return standard Gumbel noise for each token id, independent for different keys and tokens.

    Args:
        keys: As ``key_array`` makes them, any shape that broadcasts with ``token_ids``.
        token_ids: Any shape.
        arrivals: The first arrivals of their blocks, where they are known.
    """
    if arrivals is None:
        blocks = (token_ids // BLOCK_TOKENS).astype(np.uint64)
        arrivals = _first_arrivals(keys, (blocks + np.uint64(1)) * _BLOCK_STEP)
    words = _mixed(keys + (token_ids + 1).astype(np.uint64) * _TOKEN_STEP)
    times = _exponential(words)
    times[token_ids % BLOCK_TOKENS == arrivals.places] = 0
    times += arrivals.times
    return -np.log(times)
