"""The callers' side of shadow scores: which sequences are followed, and what came of it.

A sampled sequence is followed by every drafter that has a share for it, whether or not it ever
asks that drafter: its tokens go to one worker of it every few rounds, and nobody waits. The sample
is a hash of the sequence's name, so it is the same wherever the sequence runs.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drafters.checking import malformed_counts
from drafters.members import MemberKey
from drafters.shadow import FollowedTokens, ShadowCell, ShadowCounts, add_counts

SEND_EVERY = 32
"""Tokens that are sent together."""

PooledShadow = Mapping[tuple[str, str], ShadowCounts]
"""Counts by drafter and its version."""


@dataclass(slots=True)
class _Feed:
    worker: MemberKey
    num_sent: int


class Following:
    """The followed sequences of one client. Belongs to the thread that makes the steps.

    Args:
        shares: For each drafter the share of sequences that it follows, 0 to 1.
        workers: Returns the workers of a drafter that may be told something.
        send: Has a worker told of tokens, soon.
    """

    def __init__(
        self,
        shares: Mapping[str, float],
        workers: Callable[[str], Sequence[MemberKey]],
        send: Callable[[MemberKey, FollowedTokens], None],
    ) -> None:
        self._shares = {name: share for name, share in shares.items() if share > 0.0}
        self._workers = workers
        self._send = send
        self._feeds: dict[str, dict[str, _Feed | None]] = {}

    def follows(self, session_id: str) -> bool:
        """Return whether some drafter follows the sequence. Cheap."""
        if not self._shares:
            return False
        feeds = self._feeds.get(session_id)
        if feeds is None:
            feeds = {
                name: None
                for name, share in self._shares.items()
                if _uniform(f"{name}\0{session_id}") < share
            }
            self._feeds[session_id] = feeds
        return bool(feeds)

    def feed(self, session_id: str, token_ids: Sequence[int], tenant: str) -> None:
        """Pass on a sequence's new tokens, if there are enough.

        Args:
            session_id: The sequence.
            token_ids: Prompt and all tokens emitted so far. What it holds at first is context.
            tenant: Whose request it is.
        """
        if not self.follows(session_id):
            return
        feeds = self._feeds[session_id]
        for name, feed in feeds.items():
            if feed is None:
                workers = self._workers(name)
                if workers:
                    worker = min(workers, key=lambda key: _uniform("\0".join((session_id, *key))))
                    feeds[name] = _Feed(worker, len(token_ids))
                    self._send(worker, FollowedTokens(session_id, 0, tuple(token_ids), tenant))
            elif len(token_ids) - feed.num_sent >= SEND_EVERY:
                self._pass_on(session_id, feed, token_ids, is_last=False)

    def close(self, session_id: str, token_ids: Sequence[int]) -> None:
        """Pass on the last tokens, where they are known, and forget the sequence."""
        for feed in (self._feeds.pop(session_id, None) or {}).values():
            if feed is not None:
                self._pass_on(session_id, feed, token_ids, is_last=True)

    def _pass_on(
        self, session_id: str, feed: _Feed, token_ids: Sequence[int], *, is_last: bool
    ) -> None:
        tokens = tuple(token_ids[feed.num_sent :])
        self._send(feed.worker, FollowedTokens(session_id, feed.num_sent, tokens, is_last=is_last))
        feed.num_sent += len(tokens)


class ShadowPool:
    """Counts that came back, until somebody takes them. Safe for use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pooled: dict[tuple[str, str], dict[ShadowCell, tuple[int, int]]] = {}

    def add(self, name: str, version: str, counts: ShadowCounts) -> None:
        """Add what a worker counted; what cannot be is left out."""
        if not counts or malformed_counts(counts) is not None:
            return
        with self._lock:
            add_counts(self._pooled.setdefault((name, version), {}), counts)

    def take(self) -> PooledShadow:
        """Return what was added since the last call."""
        with self._lock:
            pooled, self._pooled = self._pooled, {}
        return pooled


def _uniform(text: str) -> float:
    """Return a number in [0, 1) that depends on the text only."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64
