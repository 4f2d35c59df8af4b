"""Make several calls at once and wait for all of them once, each up to its own deadline.

Pure but for the clock that is passed in: what carries the calls is behind ``Transport``. A worker
that left a call unanswered is not called again until it answers, so a paused one piles up nothing
and costs one deadline, not one a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from drafters.api import DraftBatch, DraftBatchReply
from drafters.calls import Answer, Call, CallFailure, Transport
from drafters.members import Member, MemberKey


@dataclass(slots=True)
class _Flight:
    """A call under way; ``future`` is None if it was never sent."""

    future: Future[DraftBatchReply] | None
    failure: CallFailure | None = None
    done_at: list[float] = field(default_factory=list)


class Dispatcher:
    """Sends calls and keeps count of those unanswered. ``post`` may run on another thread.

    Args:
        transports: One for each placement.
        clock: Seconds from any start, never going back.
    """

    def __init__(self, transports: Mapping[str, Transport], clock: Callable[[], float]) -> None:
        self._transports = transports
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: dict[MemberKey, Future[DraftBatchReply]] = {}
        self._posts: dict[MemberKey, Future[DraftBatchReply]] = {}

    def call(self, calls: Sequence[Call]) -> list[Answer]:
        """Make all calls and return their answers in order, after at most the longest timeout.

        What comes later is dropped. Calls within this process run while the others travel.
        """
        started = self._clock()
        flights: dict[int, _Flight] = {}
        for index in sorted(range(len(calls)), key=lambda i: _is_local(calls[i].member)):
            flights[index] = self._start(calls[index])
        for timeout_s in sorted({call.timeout_s for call in calls}):
            due = [
                flight.future
                for index, flight in flights.items()
                if calls[index].timeout_s == timeout_s and flight.future is not None
            ]
            wait(due, timeout=max(0.0, started + timeout_s - self._clock()))
        return [self._land(calls[index], flights[index], started) for index in range(len(calls))]

    def post(
        self,
        member: Member,
        batch: DraftBatch,
        on_answer: Callable[[CallFailure | None], None] = lambda failure: None,
    ) -> bool:
        """Send a call whose reply nobody waits for; return False if the worker is busy.

        A worker has at most one such call unanswered, and gets none while a draft is late.

        Args:
            member: Whom to call.
            batch: What to send.
            on_answer: Called on some thread with the failure, or None if it went well.
        """
        transport = self._transports[member.placement]
        with self._lock:
            if _under_way(self._calls, member.key) or _under_way(self._posts, member.key):
                return False
            future = transport.send(member, batch)
            self._posts[member.key] = future
        future.add_done_callback(lambda done: on_answer(_failure(transport, done)))
        return True

    def forget_all_but(self, keys: Collection[MemberKey]) -> None:
        """Forget calls to workers that are no longer members."""
        with self._lock:
            for table in (self._calls, self._posts):
                for key in [key for key in table if key not in keys]:
                    del table[key]

    def _start(self, call: Call) -> _Flight:
        transport = self._transports[call.member.placement]
        with self._lock:
            if _under_way(self._calls, call.member.key):
                return _Flight(None, CallFailure("late", "an earlier call is unanswered"))
            try:
                future = transport.send(call.member, call.batch)
            except Exception as error:
                return _Flight(None, CallFailure(transport.reason(error), _say(error)))
            self._calls[call.member.key] = future
        flight = _Flight(future)
        future.add_done_callback(lambda _: flight.done_at.append(self._clock()))
        return flight

    def _land(self, call: Call, flight: _Flight, started: float) -> Answer:
        if flight.future is None:
            assert flight.failure is not None
            return Answer(flight.failure, 0.0, sent=False)
        if not flight.future.done():
            return Answer(CallFailure("late"), call.timeout_s * 1e3)
        finished = flight.done_at[0] if flight.done_at else self._clock()
        elapsed_ms = (finished - started) * 1e3
        failure = _failure(self._transports[call.member.placement], flight.future)
        return Answer(failure or flight.future.result(), elapsed_ms)


def _under_way(table: dict[MemberKey, Future[DraftBatchReply]], key: MemberKey) -> bool:
    future = table.get(key)
    if future is not None and future.done():
        del table[key]
        return False
    return future is not None


def _failure(transport: Transport, done: Future[DraftBatchReply]) -> CallFailure | None:
    error = done.exception()
    return None if error is None else CallFailure(transport.reason(error), _say(error))


def _is_local(member: Member) -> bool:
    return member.placement == "in_process"


def _say(error: BaseException) -> str:
    return str(error) or type(error).__name__
