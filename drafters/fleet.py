"""What a client knows of the workers: who they are, how they do, what they must still be told.

Shared by the engine's thread (calls), the event loop (membership, status) and the housekeeper
(closed sessions and probes); every method may be called from any of them and holds the lock only
for moments.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from drafters.api import DraftBatch
from drafters.calls import CallFailure
from drafters.dispatch import Dispatcher
from drafters.health import WorkerHealth
from drafters.housekeeping import Housekeeper
from drafters.members import Member, MemberKey

logger = logging.getLogger(__name__)

HOUSEKEEPING_PERIOD_S = 0.05
"""Closed sessions wait this long for a call that takes them along before they get their own."""


class Fleet:
    """The workers of all drafters of one client.

    Args:
        names: The drafters there may be.
        local: Drafters in this process; always members.
        dispatcher: Sends closed sessions and probes.
        clock: Seconds from any start, never going back.
    """

    def __init__(
        self,
        names: Sequence[str],
        local: Sequence[Member],
        dispatcher: Dispatcher,
        clock: Callable[[], float],
    ) -> None:
        self._local = tuple(local)
        self._names = frozenset(names) - {member.name for member in local}
        self._dispatcher = dispatcher
        self._clock = clock
        self._lock = threading.Lock()
        self._members: dict[MemberKey, Member] = {member.key: member for member in local}
        self._health: dict[MemberKey, WorkerHealth] = {key: WorkerHealth() for key in self._members}
        self._versions = {member.name: member.info.version for member in local}
        self._empty_since = dict.fromkeys(self._names, clock())
        self._closed: dict[MemberKey, list[str]] = {}
        self._housekeeper = Housekeeper(self.tick, HOUSEKEEPING_PERIOD_S)

    def set_members(self, members: Sequence[Member]) -> None:
        """Replace all workers outside this process. Those of unknown drafters are ignored."""
        known = [member for member in members if member.name in self._names]
        with self._lock:
            for name in self._names:
                if not any(member.name == name for member in known):
                    self._empty_since.setdefault(name, self._away_since(name))
                else:
                    self._empty_since.pop(name, None)
            self._members = {member.key: member for member in (*self._local, *known)}
            self._health = {key: self._health.get(key, WorkerHealth()) for key in self._members}
            self._versions.update({member.name: member.info.version for member in known})
        self._dispatcher.forget_all_but(self._members)

    def member(self, key: MemberKey) -> Member | None:
        """Return a worker, None if it is gone."""
        return self._members.get(key)

    def usable(self, name: str) -> list[MemberKey]:
        """Return the drafter's workers that may be called."""
        with self._lock:
            return [key for key in self._keys(name) if not self._health[key].is_ejected]

    def num_workers(self, name: str) -> int:
        """Return how many workers the drafter has, ejected ones included."""
        with self._lock:
            return len(self._keys(name))

    def versions(self) -> dict[str, str]:
        """Return the version of each drafter that was ever a member, as last seen."""
        with self._lock:
            return dict(self._versions)

    def away_since(self, name: str) -> float | None:
        """Return since when (on the clock) the drafter has no usable worker; None if it has."""
        with self._lock:
            keys = self._keys(name)
            if any(not self._health[key].is_ejected for key in keys):
                return None
            return self._away_since(name)

    def record(self, key: MemberKey, failure: str | None) -> None:
        """Note how a call went: the reason why it failed, or None."""
        with self._lock:
            health = self._health.get(key)
            if health is None:
                return
            if failure is None:
                health.record_success()
                return
            was_ejected = health.is_ejected
            health.record_failure(failure, self._clock())
        if health.is_ejected:
            self._housekeeper.wake()
            if not was_ejected:
                logger.warning("drafter worker %s is left alone for now: %s", key, failure)

    def close(self, keys: Sequence[MemberKey], session_id: str) -> None:
        """Have the workers told, soon, that a session has ended."""
        for key in keys:
            member = self._members.get(key)
            if member is None:
                continue
            if member.placement == "in_process":
                self._dispatcher.post(member, DraftBatch((), (session_id,)))
                continue
            self.put_back_closed(key, (session_id,))

    def take_closed(self, key: MemberKey) -> tuple[str, ...]:
        """Return the ended sessions that the worker has not been told of, and forget them."""
        with self._lock:
            return tuple(self._closed.pop(key, ()))

    def put_back_closed(self, key: MemberKey, session_ids: Sequence[str]) -> None:
        """Note ended sessions that the worker must still be told of."""
        if session_ids:
            with self._lock:
                self._closed.setdefault(key, []).extend(session_ids)
            self._housekeeper.wake()

    def tick(self) -> bool:
        """Send what is due to workers that are idle; return whether anything is left to do."""
        now = self._clock()
        with self._lock:
            for key in [key for key in self._closed if key not in self._members]:
                del self._closed[key]
            telling = {key: self._members[key] for key in self._closed}
            probing = [
                self._members[key]
                for key, health in self._health.items()
                if key not in telling and health.take_probe(now)
            ]
        for member in telling.values():
            self._tell_closed(member)
        for member in probing:
            self._dispatcher.post(member, DraftBatch(()), self._on_probe(member.key))
        with self._lock:
            return bool(self._closed) or any(h.is_ejected for h in self._health.values())

    def stop(self) -> None:
        """End the housekeeper."""
        self._housekeeper.stop()

    def _tell_closed(self, member: Member) -> None:
        """Tell a worker what has ended; on one that is ejected this is the probe, too."""
        with self._lock:
            health = self._health.get(member.key)
            if health is None or (health.is_ejected and not health.take_probe(self._clock())):
                return
        session_ids = self.take_closed(member.key)
        answered = self._on_probe(member.key)
        if not self._dispatcher.post(member, DraftBatch((), session_ids), answered):
            self.put_back_closed(member.key, session_ids)

    def _on_probe(self, key: MemberKey) -> Callable[[CallFailure | None], None]:
        def answered(failure: CallFailure | None) -> None:
            if failure is not None:
                self.record(key, failure.reason)
                return
            with self._lock:
                health = self._health.get(key)
                if health is not None and health.is_ejected:
                    health.record_probe_answered()

        return answered

    def _keys(self, name: str) -> list[MemberKey]:
        return [key for key in self._members if key[0] == name]

    def _away_since(self, name: str) -> float:
        """When the last of the drafter's workers went; the lock is held."""
        times = [self._health[key].away_since for key in self._keys(name)]
        if not times:
            return self._empty_since.get(name, self._clock())
        return max(self._clock() if time is None else time for time in times)
