"""Which sessions a draft server has, and which of them must go. Pure: time is passed in."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice


class SessionTable:
    """Which sessions are open and when each was last used, oldest use first.

    Args:
        max_sessions: Most sessions kept, at least 1.
        idle_s: Sessions unused for longer are dropped.
        spare_s: For another session's sake one is dropped only if it is unused for so long;
            else the drafter is full.
    """

    def __init__(
        self, max_sessions: int = 4096, idle_s: float = 600.0, spare_s: float = 20.0
    ) -> None:
        self._max_sessions = max_sessions
        self._idle_s = idle_s
        self._spare_s = spare_s
        self._used_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used_at)

    def has_room(self, session_id: str, now: float) -> bool:
        """Return whether the session is open or may be opened."""
        surplus = len(self._used_at) - self._max_sessions
        if session_id in self._used_at or surplus < 0:
            return True
        # the oldest ones are to make room for those that were opened since ``take_surplus``
        used_at = next(islice(self._used_at.values(), surplus, None))
        return now - used_at > self._spare_s

    def use(self, session_id: str, now: float) -> None:
        """Note that the session was used at ``now`` (seconds)."""
        self._used_at[session_id] = now
        self._used_at.move_to_end(session_id)

    def remove(self, session_id: str) -> None:
        """Forget a session; unknown ones are no error."""
        self._used_at.pop(session_id, None)

    def take_surplus(self, now: float) -> list[str]:
        """Remove and return the sessions that are idle too long or one too many."""
        surplus: list[str] = []
        while self._used_at:
            session_id, used_at = next(iter(self._used_at.items()))
            if len(self._used_at) <= self._max_sessions and now - used_at <= self._idle_s:
                break
            del self._used_at[session_id]
            surplus.append(session_id)
        return surplus
