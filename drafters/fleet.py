"""What a client knows of the workers: who they are, how they do, what they must still be told.

Shared by the engine's thread (calls), the event loop (membership, status) and the housekeeper
(errands and probes); every method may be called from any of them and holds the lock only for
moments.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from drafters.api import ClosedSession, DraftBatch, DraftBatchReply
from drafters.calls import CallFailure
from drafters.dispatch import Dispatcher, Outcome
from drafters.errands import Errand, Errands
from drafters.health import WorkerHealth
from drafters.housekeeping import Housekeeper
from drafters.members import Member, MemberKey
from drafters.shadow import FollowedTokens

logger = logging.getLogger(__name__)

HOUSEKEEPING_PERIOD_S = 0.05
"""Errands wait this long for a call that takes them along before they get their own."""
BUSY_S = 0.25
"""How long a worker that said it is busy is spared what made it so."""


class Fleet:
    """The workers of all drafters of one client.

    Attributes:
        generation: Changes whenever the workers may have changed.

    Args:
        names: The drafters there may be.
        local: Drafters in this process; always members.
        dispatcher: Sends errands and probes.
        clock: Seconds from any start, never going back.
        on_reply: Told of every reply to an errand, on some thread.
    """

    def __init__(
        self,
        names: Sequence[str],
        local: Sequence[Member],
        dispatcher: Dispatcher,
        clock: Callable[[], float],
        on_reply: Callable[[Member, DraftBatchReply], None] = lambda member, reply: None,
    ) -> None:
        self._local = tuple(local)
        self._names = frozenset(names) - {member.name for member in local}
        self._dispatcher = dispatcher
        self._clock = clock
        self._on_reply = on_reply
        self.generation = 0
        self._lock = threading.Lock()
        self._members: dict[MemberKey, Member] = {member.key: member for member in local}
        self._health: dict[MemberKey, WorkerHealth] = {key: WorkerHealth() for key in self._members}
        self._versions = {member.name: member.info.version for member in local}
        self._empty_since = dict.fromkeys(self._names, clock())
        self._busy: dict[MemberKey, tuple[str, float]] = {}
        self._num_ejections = dict.fromkeys(names, 0)
        self._errands = Errands()
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
            self._busy = {key: busy for key, busy in self._busy.items() if key in self._members}
            self._versions.update({member.name: member.info.version for member in known})
            self.generation += 1
        self._dispatcher.forget_all_but(self._members)

    @property
    def keys(self) -> Collection[MemberKey]:
        """The workers there are."""
        return self._members.keys()

    @property
    def num_errands(self) -> int:
        """Workers that must still be told something."""
        return len(self._errands)

    def member(self, key: MemberKey) -> Member | None:
        """Return a worker, None if it is gone."""
        return self._members.get(key)

    def usable(self, name: str) -> list[MemberKey]:
        """Return the drafter's workers that may be called."""
        with self._lock:
            return [key for key in self._keys(name) if not self._health[key].is_ejected]

    def note_busy(self, key: MemberKey, reason: str) -> None:
        """Note that a worker did not take on a request; ``reason`` is as in ``Busy``."""
        self._busy[key] = (reason, self._clock() + BUSY_S)

    def busy(self, key: MemberKey) -> str | None:
        """Return why a worker had better be spared for the moment; None if it need not."""
        entry = self._busy.get(key)
        return entry[0] if entry is not None and self._clock() < entry[1] else None

    def num_workers(self, name: str) -> int:
        """Return how many workers the drafter has, ejected ones included."""
        with self._lock:
            return len(self._keys(name))

    def num_ejections(self, name: str) -> int:
        """Return how often a worker of the drafter was left alone because it failed."""
        return self._num_ejections[name]

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
            self._num_ejections[key[0]] += health.is_ejected and not was_ejected
        if health.is_ejected:
            self._housekeeper.wake()
            if not was_ejected:
                logger.warning("drafter worker %s is left alone for now: %s", key, failure)

    def close(self, key: MemberKey, closed: Sequence[ClosedSession]) -> None:
        """Have a worker told, soon, that sessions have ended."""
        if closed and key in self._members:
            self._errands.add_closed(key, closed)
            self._housekeeper.wake()

    def follow(self, key: MemberKey, followed: FollowedTokens) -> None:
        """Have a worker told, soon, of tokens of a followed sequence."""
        if key in self._members:
            self._errands.add_followed(key, followed)
            self._housekeeper.wake()

    def take_closed(self, member: Member) -> tuple[ClosedSession, ...]:
        """Return the ended sessions that a call to a worker should take along."""
        return () if member.placement == "in_process" else self._errands.take_closed(member.key)

    def tick(self) -> bool:
        """Send what is due to workers that are idle; return whether anything is left to do."""
        now = self._clock()
        self._errands.forget_all_but(self._members)
        telling = set(self._errands.keys())
        with self._lock:
            probing = [
                self._members[key]
                for key, health in self._health.items()
                if key not in telling and health.take_probe(now)
            ]
        for key in telling:
            self._run_errand(key)
        for member in probing:
            self._dispatcher.post(member, DraftBatch(()), self._on_answer(member))
        with self._lock:
            return len(self._errands) > 0 or any(h.is_ejected for h in self._health.values())

    def stop(self) -> None:
        """Tell the workers, as far as they are free, what they must still be told, and end."""
        self._housekeeper.stop()
        try:
            self.tick()
        except Exception:
            logger.exception("drafter workers were not told of the last sessions that ended")

    def _run_errand(self, key: MemberKey) -> None:
        """Tell a worker what it must be told; on one that is ejected this is the probe, too."""
        with self._lock:
            member, health = self._members.get(key), self._health.get(key)
            if member is None or health is None:
                return
            if health.is_ejected and not health.take_probe(self._clock()):
                return
        errand: Errand = self._errands.take(key)
        batch = DraftBatch((), tuple(errand.closed), tuple(errand.followed))
        if not self._dispatcher.post(member, batch, self._on_answer(member)):
            self._errands.put_back(key, errand)

    def _on_answer(self, member: Member) -> Callable[[Outcome], None]:
        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, CallFailure):
                self.record(member.key, outcome.reason)
                return
            self._on_reply(member, outcome)
            with self._lock:
                health = self._health.get(member.key)
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
