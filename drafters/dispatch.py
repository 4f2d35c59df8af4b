"""Make several calls at once and wait for all of them once, each up to its own deadline.

Pure but for the clock that is passed in: what carries the calls is behind ``Transport``. A worker
that left a call unanswered is not called again until it answers, so a paused one piles up nothing
and costs one deadline, not one a step.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from drafters.api import DraftBatch, DraftBatchReply
from drafters.calls import Answer, Call, CallFailure, LateAnswer, Transport
from drafters.members import Member, MemberKey

Outcome = DraftBatchReply | CallFailure


@dataclass(slots=True)
class _Flight:
    """A call under way; ``future`` is None if it was never sent."""

    call: Call
    started: float
    sent_at: float
    future: Future[DraftBatchReply] | None = None
    failure: CallFailure | None = None
    done_at: list[float] = field(default_factory=list)
    is_given_up: bool = False

    @property
    def is_under_way(self) -> bool:
        return self.future is not None and not self.future.done()

    def is_overdue(self, now: float) -> bool:
        """Whether it has taken so long that the worker is at fault."""
        limit_s = self.call.timeout_s if self.call.limit_s is None else self.call.limit_s
        return now >= self.started + limit_s


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
        self._calls: dict[MemberKey, _Flight] = {}
        self._posts: dict[MemberKey, Future[DraftBatchReply]] = {}
        self._late: deque[_Flight] = deque()

    def call(self, calls: Sequence[Call]) -> list[Answer]:
        """Make all calls and return their answers in order, after at most the longest timeout.

        What comes later is kept for ``take_late``. Calls within this process run while the others
        travel.
        """
        started = self._clock()
        flights: dict[int, _Flight] = {}
        for index in sorted(range(len(calls)), key=lambda i: _is_local(calls[i].member)):
            flights[index] = self._start(calls[index], started)
        for timeout_s in sorted({call.timeout_s for call in calls}):
            due = [
                flight.future
                for flight in flights.values()
                if flight.call.timeout_s == timeout_s and flight.future is not None
            ]
            wait(due, timeout=max(0.0, started + timeout_s - self._clock()))
        return [self._land(flights[index], started) for index in range(len(calls))]

    def take_late(self) -> list[LateAnswer]:
        """Return the answers that came too late for their step, each once."""
        late = []
        while self._late:
            flight = self._late.popleft()
            round_trip_ms = (flight.done_at[0] - flight.sent_at) * 1e3
            late.append(LateAnswer(flight.call, self._outcome(flight), round_trip_ms))
        return late

    def post(
        self,
        member: Member,
        batch: DraftBatch,
        on_answer: Callable[[Outcome], None] = lambda outcome: None,
    ) -> bool:
        """Send a call whose reply nobody waits for; return False if the worker is busy.

        A worker has at most one such call unanswered, and gets none while a draft is late.

        Args:
            member: Whom to call.
            batch: What to send.
            on_answer: Called on some thread with what came of it.
        """
        transport = self._transports[member.placement]
        with self._lock:
            post = self._posts.get(member.key)
            if self._is_called(member.key) or (post is not None and not post.done()):
                return False
            future = transport.send(member, batch)
            self._posts[member.key] = future
        future.add_done_callback(lambda done: on_answer(_outcome(transport, done)))
        return True

    def forget_all_but(self, keys: Collection[MemberKey]) -> None:
        """Forget calls to workers that are no longer members."""
        with self._lock:
            for key in [key for key in self._calls if key not in keys]:
                del self._calls[key]
            for key in [key for key in self._posts if key not in keys]:
                del self._posts[key]

    def _is_called(self, key: MemberKey) -> bool:
        flight = self._calls.get(key)
        return flight is not None and flight.is_under_way

    def _start(self, call: Call, started: float) -> _Flight:
        transport = self._transports[call.member.placement]
        with self._lock:
            now = self._clock()
            flight = _Flight(call, started, now)
            earlier = self._calls.get(call.member.key)
            if earlier is not None and earlier.is_under_way:
                flight.failure = CallFailure(
                    "late", "an earlier call is unanswered", earlier.is_overdue(now)
                )
                return flight
            try:
                flight.future = transport.send(call.member, call.batch)
            except Exception as error:
                flight.failure = CallFailure(transport.reason(error), _say(error))
                return flight
            self._calls[call.member.key] = flight
        flight.future.add_done_callback(lambda _: self._done(flight))
        return flight

    def _done(self, flight: _Flight) -> None:
        flight.done_at.append(self._clock())
        with self._lock:
            if flight.is_given_up:
                self._late.append(flight)

    def _land(self, flight: _Flight, started: float) -> Answer:
        if flight.failure is not None:
            return Answer(flight.failure, 0.0, sent=False)
        with self._lock:
            flight.is_given_up = flight.is_under_way
        if flight.is_given_up:
            late = CallFailure("late", is_fault=flight.is_overdue(self._clock()))
            return Answer(late, flight.call.timeout_s * 1e3)
        done_at = flight.done_at[0] if flight.done_at else self._clock()
        return Answer(
            self._outcome(flight),
            (done_at - started) * 1e3,
            round_trip_ms=(done_at - flight.sent_at) * 1e3,
        )

    def _outcome(self, flight: _Flight) -> Outcome:
        assert flight.future is not None
        return _outcome(self._transports[flight.call.member.placement], flight.future)


def _outcome(transport: Transport, done: Future[DraftBatchReply]) -> Outcome:
    error = done.exception()
    return done.result() if error is None else CallFailure(transport.reason(error), _say(error))


def _is_local(member: Member) -> bool:
    return member.placement == "in_process"


def _say(error: BaseException) -> str:
    return str(error) or type(error).__name__
