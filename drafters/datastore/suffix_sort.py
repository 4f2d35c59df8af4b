"""Sort the suffixes of a shard by their first tokens. Pure.

Prefix doubling (Manber and Myers 1993, "Suffix arrays") that stops at a depth: whoever looks for
sequences of at most that length needs no more, and text that repeats for pages costs no more. The
first pass sorts by as many tokens as 64 bits hold; each further pass doubles the length, and sorts
only those suffixes that still have equals (Larsson and Sadakane 2007).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sorted_suffixes(
    token_ids: NDArray[np.unsignedinteger], num_own: int, separator: int, depth: int
) -> NDArray[np.int32]:
    """Return the positions of tokens, ordered by the at least ``depth`` tokens that begin there.

    Suffixes that agree so far stay in order of position. What follows a separator may count too:
    a search for tokens, which are smaller, never looks beyond one. Takes about 60 bytes of memory
    for each token while it runs.

    Args:
        token_ids: ``[num_tokens]``, fewer than 2^31; unsigned integers of 16 or 32 bits.
        num_own: Only positions before this one are returned.
        separator: Ends documents; suffixes that begin with it are left out.
        depth: Tokens that the order looks at, at least 1.
    """
    length = 8 // token_ids.itemsize
    keys = _first_keys(token_ids, length)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    ranks = np.zeros(len(token_ids) + max(depth, length), dtype=np.int64)
    slots = np.arange(len(token_ids))
    while True:
        is_first = np.ones(len(slots), dtype=np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
        ranks[order[slots]] = _group_starts(slots, is_first) + 1
        is_tied = ~is_first
        is_tied[:-1] |= ~is_first[1:]
        slots = slots[is_tied]
        if length >= depth or not len(slots):
            break
        tied = order[slots]
        keys = ((ranks[tied] << 32) | ranks[tied + length]).view(np.uint64)
        new_order = np.argsort(keys, kind="stable")
        order[slots], keys = tied[new_order], keys[new_order]
        length *= 2
    suffixes = order.astype(np.int32)
    own: NDArray[np.int32] = suffixes[(suffixes < num_own) & (token_ids[suffixes] != separator)]
    return own


def _first_keys(token_ids: NDArray[np.unsignedinteger], length: int) -> NDArray[np.uint64]:
    """Return for each position the ``length`` tokens from there on as one number."""
    num_tokens, bits = len(token_ids), 8 * token_ids.itemsize
    padded = np.concatenate([token_ids, np.zeros(length - 1, token_ids.dtype)])
    keys = np.zeros(num_tokens, dtype=np.uint64)
    for offset in range(length):
        keys <<= np.uint64(bits)
        keys |= padded[offset : offset + num_tokens]
    return keys


def _group_starts(slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each slot the first slot of its group of equals."""
    first = np.where(is_first, np.arange(len(slots)), 0)
    starts: NDArray[np.int64] = slots[np.maximum.accumulate(first)]
    return starts
