"""Past replies that drafts may be copied from, tenants apart and bounded in memory. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence

from drafters.suffix_index.grams import GramIndex, Occurrence

MIN_REPLY_TOKENS = 2
"""Shorter replies teach nothing: no token follows another."""


class _Tenant:
    """One tenant's replies; nothing in it is shared with other tenants."""

    __slots__ = ("index", "num_tokens", "replies")

    def __init__(self, index: GramIndex) -> None:
        self.index = index
        self.num_tokens = 0
        self.replies: deque[tuple[int, int]] = deque()
        """Of each reply when it came, in replies to the pool, and how many tokens it has."""


class ReplyPool:
    """Replies of all tenants; whoever asks finds its own tenant's only.

    The bounds hold after every call. Where one is passed, the oldest replies go first: those of the
    tenant whose share is full, or of whoever has the oldest; of too many tenants the one goes that
    has had no reply for the longest time.

    Args:
        new_index: Makes the index of a tenant's replies.
        max_tokens: Most tokens kept in all.
        max_tenant_tokens: Most tokens kept of one tenant; of a longer reply its end is kept.
        max_tenants: Most tenants kept, at least 1.
    """

    def __init__(
        self,
        new_index: Callable[[], GramIndex],
        *,
        max_tokens: int,
        max_tenant_tokens: int,
        max_tenants: int,
    ) -> None:
        self._new_index = new_index
        self._max_tokens = max_tokens
        self._max_tenant_tokens = min(max_tenant_tokens, max_tokens)
        self._max_tenants = max_tenants
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._num_tokens = 0
        self._num_added = 0

    @property
    def num_tokens(self) -> int:
        """Tokens kept in all."""
        return self._num_tokens

    @property
    def num_tenants(self) -> int:
        """Tenants of whom a reply is kept."""
        return len(self._tenants)

    @property
    def num_grams(self) -> int:
        """N-grams that are listed, of all tenants; nearly all the memory is theirs."""
        return sum(tenant.index.num_grams for tenant in self._tenants.values())

    def add(self, tenant: str, reply: Sequence[int]) -> None:
        """Keep a reply, and drop what there is no room for any more."""
        reply = reply[-self._max_tenant_tokens :] if self._max_tenant_tokens else ()
        if len(reply) < MIN_REPLY_TOKENS:
            return
        kept = self._tenants.get(tenant)
        if kept is None:
            kept = _Tenant(self._new_index())
            self._tenants[tenant] = kept
        self._tenants.move_to_end(tenant)
        while kept.num_tokens + len(reply) > self._max_tenant_tokens:
            self._drop_oldest(kept)
        kept.index.add(reply)
        kept.replies.append((self._num_added, len(reply)))
        self._num_added += 1
        kept.num_tokens += len(reply)
        self._num_tokens += len(reply)
        self._shrink()

    def matches(
        self, tenant: str, pattern: Sequence[int], is_worth: Callable[[int], bool] = bool
    ) -> Iterator[tuple[int, list[Occurrence]]]:
        """Yield what of the pattern's end occurred in the tenant's replies, longest first.

        See ``GramIndex.matches``; of two replies the one added later is the more recent.
        """
        kept = self._tenants.get(tenant)
        return iter(()) if kept is None else kept.index.matches(pattern, is_worth)

    def _shrink(self) -> None:
        while len(self._tenants) > self._max_tenants:
            _, dropped = self._tenants.popitem(last=False)
            self._num_tokens -= dropped.num_tokens
        while self._num_tokens > self._max_tokens:
            oldest = min(self._tenants, key=lambda name: self._tenants[name].replies[0])
            self._drop_oldest(self._tenants[oldest])
            if not self._tenants[oldest].replies:
                del self._tenants[oldest]

    def _drop_oldest(self, tenant: _Tenant) -> None:
        _, num_tokens = tenant.replies.popleft()
        tenant.index.remove_oldest()
        tenant.num_tokens -= num_tokens
        self._num_tokens -= num_tokens
