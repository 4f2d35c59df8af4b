"""What workers must still be told, off the hot path: ended sessions, tokens of followed sequences.

Safe for use from several threads; every method holds the lock only for moments.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from drafters.api import ClosedSession
from drafters.members import MemberKey
from drafters.shadow import FollowedTokens

MAX_FOLLOWED = 256
"""Most messages about followed sequences that wait for one worker; more are dropped."""


@dataclass(slots=True)
class Errand:
    """What one worker must be told.

    Attributes:
        closed: Sessions that have ended.
        followed: Tokens of followed sequences.
    """

    closed: list[ClosedSession] = field(default_factory=list)
    followed: list[FollowedTokens] = field(default_factory=list)


class Errands:
    """What all workers of one client must be told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errands: dict[MemberKey, Errand] = {}

    def __len__(self) -> int:
        return len(self._errands)

    def add_closed(self, key: MemberKey, closed: Sequence[ClosedSession]) -> None:
        """Have a worker told of sessions that have ended."""
        if closed:
            with self._lock:
                self._errands.setdefault(key, Errand()).closed.extend(closed)

    def add_followed(self, key: MemberKey, followed: FollowedTokens) -> None:
        """Have a worker told of tokens; dropped if too much waits for it."""
        with self._lock:
            waiting = self._errands.setdefault(key, Errand()).followed
            if len(waiting) < MAX_FOLLOWED:
                waiting.append(followed)

    def take_closed(self, key: MemberKey) -> tuple[ClosedSession, ...]:
        """Return the ended sessions that may go with a call, and forget them.

        None may overtake the tokens of a followed sequence: the worker must have those to know that
        a session is followed.
        """
        errand = self._errands.get(key)
        if errand is None or errand.followed:
            return ()
        with self._lock:
            errand = self._errands.pop(key, None)
        if errand is None:
            return ()
        if errand.followed:
            self.put_back(key, errand)
            return ()
        return tuple(errand.closed)

    def take(self, key: MemberKey) -> Errand:
        """Return all that a worker must be told, and forget it."""
        with self._lock:
            return self._errands.pop(key, None) or Errand()

    def put_back(self, key: MemberKey, errand: Errand) -> None:
        """Note again what could not be told, before what came since."""
        if not errand.closed and not errand.followed:
            return
        with self._lock:
            since = self._errands.get(key, Errand())
            self._errands[key] = Errand(
                errand.closed + since.closed, errand.followed + since.followed
            )

    def keys(self) -> list[MemberKey]:
        """Return the workers that must be told something."""
        with self._lock:
            return list(self._errands)

    def forget_all_but(self, keys: Collection[MemberKey]) -> None:
        """Forget what workers that are gone were to be told."""
        with self._lock:
            for key in [key for key in self._errands if key not in keys]:
                del self._errands[key]
