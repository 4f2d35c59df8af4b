"""The draft model's sessions, and what of them is in its paged cache.

A session is its context; keys and values are a cache of it that may be lost and is computed anew.
After a draft its rows stay in the cache, behind the context's: if the next context goes on along
one of the draft's paths, as it does where tokens were accepted, those are not computed again. Full
pages of contexts are shared among sessions that begin alike. When pages run out, the session that
was asked for longest ago loses its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from drafters.api import NoiseKey
from drafters.open_sessions import OpenSessions
from models.kv_cache import KVCache
from models.pages import PagePool, PageTable


@dataclass(slots=True)
class DraftSession:
    """One sequence.

    Attributes:
        token_ids: Its context.
        noise: Key of the target's sampling noise.
        largest_token: The largest token id in the context.
        table: Its pages.
        num_cached: How many tokens of the context are in the cache, from the first on.
        row_tokens: Tokens of draft rows that are in the cache behind the context's.
        row_parents: Their parents, as rows; -1 is the context's last token.
    """

    token_ids: list[int]
    noise: NoiseKey
    largest_token: int = field(init=False)
    table: PageTable = field(default_factory=PageTable)
    num_cached: int = 0
    row_tokens: list[int] = field(default_factory=list)
    row_parents: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.largest_token = max(self.token_ids, default=-1)

    @property
    def num_missing(self) -> int:
        """Tokens of the context that are not in the cache."""
        return len(self.token_ids) - self.num_cached

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens to the context."""
        self.token_ids.extend(token_ids)
        self.largest_token = max(self.largest_token, *token_ids, -1)

    def take_accepted(self) -> list[int]:
        """Return the draft rows that the context goes on with, in order, and forget all rows.

        ``num_cached`` counts them from then on: they belong into the slots behind the context's.
        """
        edges = zip(self.row_parents, self.row_tokens, strict=True)
        children = {edge: row for row, edge in enumerate(edges)}
        path: list[int] = []
        row = -1
        for token in self.token_ids[self.num_cached :]:
            row = children.get((row, token), -1)
            if row < 0:
                break
            path.append(row)
        self.num_cached += len(path)
        self.row_tokens, self.row_parents = [], []
        return path


class SessionCache:
    """All sessions and the pages they hold.

    Args:
        cache: Keys and values of the draft model.
        num_pages: Pages in it.
    """

    def __init__(self, cache: KVCache, num_pages: int) -> None:
        self.pool = PagePool(num_pages, cache.page_tokens)
        self._cache = cache
        self._sessions = OpenSessions[DraftSession]()
        self._holding: OrderedDict[str, DraftSession] = OrderedDict()

    def open(self, session_id: str, session: DraftSession) -> None:
        """Start a session, or start it anew."""
        self.close(session_id)
        self._sessions[session_id] = session

    def close(self, session_id: str) -> None:
        """Forget a session and free its pages; unknown ones are no error."""
        self._release(session_id)
        self._sessions.pop(session_id, None)

    def length(self, session_id: str) -> int:
        """Return the length of a session's context; 0 if it is not open."""
        session = self._sessions.get(session_id)
        return len(session.token_ids) if session else 0

    def get(self, session_id: str) -> DraftSession:
        """Return a session.

        Raises:
            UnknownSessionError: If it is not open.
        """
        return self._sessions[session_id]

    def prepare(self, session_id: str, num_rows: int, busy: Collection[str]) -> bool:
        """Line up what is in the cache of a session and get pages for its context and a draft.

        Of the context at least the last token is left to compute, because its logits are needed.

        Args:
            session_id: An open session.
            num_rows: Draft rows to have room for.
            busy: Sessions that keep their pages.

        Returns:
            Whether there were enough pages. If not, the session has none left: others need them.
        """
        session = self._sessions[session_id]
        self._keep_accepted(session)
        if not session.table.pages:
            session.num_cached = self.pool.reuse_prefix(session.table, session.token_ids)
        session.num_cached = min(session.num_cached, len(session.token_ids) - 1)
        self._holding[session_id] = session
        self._holding.move_to_end(session_id)
        if self._grow(session, len(session.token_ids) + num_rows, busy):
            return True
        self._release(session_id)
        return False

    def commit(self, session: DraftSession, num_tokens: int) -> None:
        """Note that the next ``num_tokens`` of the context have been computed."""
        session.num_cached += num_tokens
        # Its last token will be computed once more, so it must not be in a page that is shared.
        known = min(session.num_cached, len(session.token_ids) - 1)
        self.pool.publish(session.table, session.token_ids, known)

    def keep_rows(
        self, session: DraftSession, token_ids: Sequence[int], parents: Sequence[int]
    ) -> None:
        """Note that these draft rows have been computed; return pages beyond them."""
        session.row_tokens, session.row_parents = list(token_ids), list(parents)
        self.pool.shrink(session.table, len(session.token_ids) + len(token_ids))

    def slots(self, session: DraftSession, num_tokens: int) -> list[int]:
        """Return the slots of a session's first ``num_tokens`` tokens, draft rows included."""
        return self._cache.slots(session.table, num_tokens)

    def _keep_accepted(self, session: DraftSession) -> None:
        first = session.num_cached
        num_rows = len(session.row_tokens)
        path = session.take_accepted()
        if path != list(range(len(path))):
            slots = self.slots(session, first + num_rows)[first:]
            self._cache.move([slots[row] for row in path], slots[: len(path)])

    def _grow(self, session: DraftSession, num_tokens: int, busy: Collection[str]) -> bool:
        if self.pool.pages_for(num_tokens) > self.pool.num_pages:
            return False
        while not self.pool.grow(session.table, num_tokens):
            idle = next((other for other in self._holding if other not in busy), None)
            if idle is None:
                return False
            self._release(idle)
        return True

    def _release(self, session_id: str) -> None:
        """Take a session's pages; it stays open and is computed anew when it is asked for."""
        session = self._holding.pop(session_id, None)
        if session is not None:
            self.pool.release(session.table)
            session.num_cached = 0
            session.row_tokens, session.row_parents = [], []
