"""Pages of the cache: who holds which, what can be reused, what is evicted. Pure bookkeeping.

A page holds the keys and values of ``page_tokens`` consecutive tokens of a sequence. A full page is
known by a hash of all tokens up to its end, so a later sequence that begins with the same tokens
shares it. Pages nobody holds keep their content until they are needed, least recently used first.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

_EMPTY = b""


class PageTable:
    """The pages of one sequence, in order.

    Attributes:
        pages: Page numbers; token ``i`` lies in ``pages[i // page_tokens]``.
        num_hashed: How many of the pages are full and known by their hash.
    """

    __slots__ = ("hash", "num_hashed", "pages")

    def __init__(self) -> None:
        self.pages: list[int] = []
        self.num_hashed = 0
        self.hash = _EMPTY


class PagePool:
    """All pages of a Verifier's cache.

    Args:
        num_pages: How many there are.
        page_tokens: Tokens in each.
    """

    def __init__(self, num_pages: int, page_tokens: int) -> None:
        if num_pages < 1 or page_tokens < 1:
            raise ValueError(f"need pages and tokens in them, got {num_pages} and {page_tokens}")
        self.num_pages = num_pages
        self.page_tokens = page_tokens
        self._fresh = list(range(num_pages - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._num_holders = [0] * num_pages
        self._page_of_hash: dict[bytes, int] = {}
        self._hash_of_page: dict[int, bytes] = {}

    @property
    def num_available(self) -> int:
        """Pages that can be had now."""
        return len(self._fresh) + len(self._idle)

    @property
    def num_used(self) -> int:
        """Pages that some sequence holds."""
        return self.num_pages - self.num_available

    def pages_for(self, num_tokens: int) -> int:
        """Return how many pages ``num_tokens`` tokens need."""
        return -(-num_tokens // self.page_tokens)

    def reuse_prefix(self, table: PageTable, token_ids: Sequence[int]) -> int:
        """Give an empty table the pages that already hold a prefix of ``token_ids``.

        At least one token is left to compute, because its logits are needed.

        Returns:
            Number of tokens whose keys and values need not be computed.
        """
        assert not table.pages
        for start in range(0, len(token_ids) - self.page_tokens, self.page_tokens):
            key = _chain_hash(table.hash, token_ids[start : start + self.page_tokens])
            page = self._page_of_hash.get(key)
            if page is None:
                break
            self._hold(page)
            table.pages.append(page)
            table.num_hashed += 1
            table.hash = key
        return len(table.pages) * self.page_tokens

    def grow(self, table: PageTable, num_tokens: int) -> bool:
        """Make room for ``num_tokens`` tokens in all.

        Returns:
            False, with nothing changed, if there are not enough pages.
        """
        num_more = self.pages_for(num_tokens) - len(table.pages)
        if num_more > self.num_available:
            return False
        for _ in range(num_more):
            table.pages.append(self._take())
        return True

    def shrink(self, table: PageTable, num_tokens: int) -> None:
        """Return the pages beyond the first ``num_tokens`` tokens."""
        keep = self.pages_for(num_tokens)
        while len(table.pages) > keep:
            self._release(table.pages.pop())
        assert table.num_hashed <= keep

    def publish(self, table: PageTable, token_ids: Sequence[int], num_cached: int) -> None:
        """Make the full pages among the first ``num_cached`` tokens reusable."""
        while (table.num_hashed + 1) * self.page_tokens <= num_cached:
            start = table.num_hashed * self.page_tokens
            table.hash = _chain_hash(table.hash, token_ids[start : start + self.page_tokens])
            page = table.pages[table.num_hashed]
            if table.hash not in self._page_of_hash:
                self._page_of_hash[table.hash] = page
                self._hash_of_page[page] = table.hash
            table.num_hashed += 1

    def release(self, table: PageTable) -> None:
        """Return all pages of a sequence; published ones stay reusable until they are needed."""
        # Last pages first: a prefix is useful without its continuation, not the other way round.
        while table.pages:
            self._release(table.pages.pop())
        table.num_hashed = 0
        table.hash = _EMPTY

    def _hold(self, page: int) -> None:
        self._idle.pop(page, None)
        self._num_holders[page] += 1

    def _take(self) -> int:
        if self._fresh:
            page = self._fresh.pop()
        else:
            page, _ = self._idle.popitem(last=False)
            del self._page_of_hash[self._hash_of_page.pop(page)]
        self._num_holders[page] = 1
        return page

    def _release(self, page: int) -> None:
        self._num_holders[page] -= 1
        if self._num_holders[page]:
            return
        if page in self._hash_of_page:
            self._idle[page] = None
        else:
            self._fresh.append(page)


def page_hashes(token_ids: Sequence[int], page_tokens: int, max_pages: int) -> list[bytes]:
    """Return what the pages that a prompt may share are known by, first to last.

    As in ``PagePool.reuse_prefix`` at least one token is left over.

    >>> len(page_hashes(range(32), 16, 100)), len(page_hashes(range(33), 16, 100))
    (1, 2)
    """
    hashes: list[bytes] = []
    last = _EMPTY
    for start in range(0, len(token_ids) - page_tokens, page_tokens)[:max_pages]:
        last = _chain_hash(last, token_ids[start : start + page_tokens])
        hashes.append(last)
    return hashes


def _chain_hash(previous: bytes, token_ids: Sequence[int]) -> bytes:
    # Cryptographic, because a collision would show one request the context of another.
    return blake2b(previous + array("q", token_ids).tobytes(), digest_size=16).digest()
