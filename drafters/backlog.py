"""What a draft server puts off until nobody waits for a draft: ended sessions and replays. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from drafters.api import ClosedSession
from drafters.replay import Replayer
from drafters.shadow import FollowedTokens

MAX_FOLLOWED = 512
"""Most messages about followed sequences that wait; more are dropped, and those not followed."""
REPLAY_SHARE = 0.2
"""Share of its idle time that a server replays."""


class Backlog:
    """Pieces of work, to be done one at a time.

    A session that is followed here is only closed once it has been replayed: a method that shares
    its reply would else find the very reply that is replayed.

    Args:
        close: Closes a session.
        replayer: Replays followed sequences.
        clock: Seconds from any start, never going back.
    """

    def __init__(
        self,
        close: Callable[[ClosedSession], None],
        replayer: Replayer,
        clock: Callable[[], float],
    ) -> None:
        self._close = close
        self._replayer = replayer
        self._clock = clock
        self._closed: OrderedDict[str, ClosedSession] = OrderedDict()
        self._followed: deque[FollowedTokens] = deque()

    @property
    def num_closing(self) -> int:
        """Ended sessions that are not closed yet."""
        return len(self._closed)

    @property
    def has_work(self) -> bool:
        """Whether ``do_one`` would do anything, or is to be asked again later."""
        return bool(self._closed or self._followed or self._replayer.has_work)

    def close_later(self, closed: ClosedSession) -> None:
        """Note that a session has ended; what was noted first of it holds."""
        self._closed.setdefault(closed.session_id, closed)

    def follow_later(self, followed: FollowedTokens) -> None:
        """Note tokens of a followed sequence."""
        if len(self._followed) < MAX_FOLLOWED:
            self._followed.append(followed)

    def close_now(self, session_id: str) -> None:
        """Close a session if that was put off."""
        closed = self._closed.pop(session_id, None)
        if closed is not None:
            self._close(closed)

    def do_one(self) -> float | None:
        """Do one piece of work; return in how many seconds to do the next, None if there is none.

        A piece that raises is not tried again.
        """
        session_id = self._closable()
        if session_id is not None:
            self.close_now(session_id)
            return self._pause_s(0.0)
        started = self._clock()
        if self._followed:
            self._replayer.take(self._followed.popleft(), started)
        elif self._replayer.has_work:
            self._replayer.step()
        return self._pause_s((self._clock() - started) * (1.0 / REPLAY_SHARE - 1.0))

    def _pause_s(self, after_replay_s: float) -> float | None:
        if self._closable() is not None:
            return 0.0
        return after_replay_s if self._followed or self._replayer.has_work else None

    def _closable(self) -> str | None:
        """Return an ended session that may be closed now; the oldest one."""
        waiting = {followed.session_id for followed in self._followed} if self._closed else ()
        for session_id in self._closed:
            if session_id not in waiting and not self._replayer.follows(session_id):
                return session_id
        return None
