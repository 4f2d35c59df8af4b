"""Search one shard of a memory-mapped datastore.

A search touches O(log n) suffixes and compares bytes of the map, so that nothing is read ahead of
need and nothing is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drafters.datastore.header import aligned


class Shard:
    """The tokens and ordered suffixes of one shard.

    Queries are token ids as bytes in the file's type; an occurrence counts only if a token of the
    same document follows it. Occurrences are named by their ranks in the order of suffixes.

    Args:
        data: The whole file.
        offset: Where the shard begins in it.
        num_tokens: Token ids, separators included.
        num_suffixes: Suffixes.
        dtype: Type of the token ids.
    """

    def __init__(
        self, data: mmap, offset: int, num_tokens: int, num_suffixes: int, dtype: str
    ) -> None:
        self._data, self._offset = data, offset
        self.token_ids: NDArray[Any] = np.frombuffer(data, dtype, num_tokens, offset)
        self._width = self.token_ids.itemsize
        self._end_of_document = b"\xff" * self._width
        suffixes_at = offset + aligned(self.token_ids.nbytes)
        self.suffixes: NDArray[np.int32] = np.frombuffer(data, "<i4", num_suffixes, suffixes_at)
        self._suffix_at = self.suffixes.item
        self._ranks = range(num_suffixes)

    def longest(self, query: bytes, floor: int) -> int:
        """Return how many of the query's last tokens occur, or ``floor`` if that is no more.

        Shorter endings occur where longer ones do, so the length is found by bisection.
        """
        low, high = floor, len(query) // self._width
        if low >= high or not self._occurs(query, low + 1):
            return floor
        low += 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._occurs(query, middle):
                low = middle
            else:
                high = middle - 1
        return low

    def find(self, query: bytes) -> range:
        """Return the ranks of the occurrences of the whole query."""
        first = self._first(query, 0)
        return range(first, self._first(query + self._end_of_document, first))

    def _occurs(self, query: bytes, num_tokens: int) -> bool:
        query = query[-num_tokens * self._width :]
        rank = self._first(query, 0)
        if rank == len(self._ranks):
            return False
        # A suffix that ends its document after the query comes behind those that go on.
        found = self._start_of(len(query) + self._width)(rank)
        return found.startswith(query) and not found.endswith(self._end_of_document)

    def _first(self, query: bytes, low: int) -> int:
        """Return the rank of the first suffix, from ``low`` on, that is not before the query."""
        return bisect_left(self._ranks, query, lo=low, key=self._start_of(len(query)))

    def _start_of(self, num_bytes: int) -> Callable[[int], bytes]:
        """Return what gives a suffix's first bytes by its rank."""
        data, offset, width, suffix_at = self._data, self._offset, self._width, self._suffix_at

        def start(rank: int) -> bytes:
            at = offset + width * suffix_at(rank)
            return data[at : at + num_bytes]

        return start
