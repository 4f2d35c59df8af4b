"""Answer calls to a drafter: keep its sessions in step with the callers', and bounded.

Pure: works on any ``Drafter``, in a worker or inside a Verifier; the clock is passed in.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from drafters.api import Draft, DraftBatch, DraftBatchReply, Drafter, DraftRequest, NeedContext


class SessionTable:
    """Which sessions are open and when each was last used, oldest use first.

    Args:
        max_sessions: Most sessions kept, at least 1.
        idle_s: Sessions unused for longer are dropped.
    """

    def __init__(self, max_sessions: int = 4096, idle_s: float = 600.0) -> None:
        self._max_sessions = max_sessions
        self._idle_s = idle_s
        self._used_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used_at)

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


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What a draft server did since it started.

    Attributes:
        num_sessions: Sessions open now.
        num_calls: Calls answered.
        num_drafts: Drafts that were not empty.
        num_draft_tokens: Tokens in them.
        busy_ms: Time spent in calls.
    """

    num_sessions: int
    num_calls: int
    num_drafts: int
    num_draft_tokens: int
    busy_ms: float


class DraftServer:
    """A drafter and its sessions, answering whole calls.

    A session that is not open, or not at the position the caller names, is never guessed at: its
    answer is ``NeedContext``. Calls may come from one thread and ``sweep`` from another.

    Args:
        drafter: The method.
        incarnation: Goes into every reply.
        clock: Seconds from any start, never going back.
        sessions: Bounds on the sessions kept.
    """

    def __init__(
        self,
        drafter: Drafter,
        incarnation: str,
        clock: Callable[[], float],
        sessions: SessionTable | None = None,
    ) -> None:
        self.drafter = drafter
        self.incarnation = incarnation
        self._clock = clock
        self._sessions = sessions if sessions is not None else SessionTable()
        self._lock = threading.Lock()
        self._load = ServerLoad(0, 0, 0, 0, 0.0)

    def answer(self, batch: DraftBatch) -> DraftBatchReply:
        """Close what has ended, bring each session up to date and propose for it.

        The time the call took is shared out evenly as cost among drafts that name none.
        """
        with self._lock:
            started = self._clock()
            for session_id in batch.closed:
                self._close(session_id)
            answers = self._answers(batch, started)
            for session_id in self._sessions.take_surplus(started):
                self.drafter.close(session_id)
            draft_ms = (self._clock() - started) * 1e3
            reply = DraftBatchReply(
                self.incarnation, _with_cost(answers, draft_ms), draft_ms, len(self._sessions)
            )
            self._count(reply)
            return reply

    def sweep(self) -> None:
        """Drop sessions that are idle too long, unless a call is running."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for session_id in self._sessions.take_surplus(self._clock()):
                self.drafter.close(session_id)
        finally:
            self._lock.release()

    def load(self) -> ServerLoad:
        """Return what the server did so far; never waits for a running call."""
        return replace(self._load, num_sessions=len(self._sessions))

    def _answers(self, batch: DraftBatch, now: float) -> list[Draft | NeedContext]:
        needs = [self._catch_up(request, now) for request in batch.requests]
        wanted = [
            (request.session_id, request.max_tokens)
            for request, need in zip(batch.requests, needs, strict=True)
            if need is None
        ]
        drafts = iter(self.drafter.propose(wanted) if wanted else ())
        return [next(drafts) if need is None else need for need in needs]

    def _catch_up(self, request: DraftRequest, now: float) -> NeedContext | None:
        """Bring the session to where the caller is, or say that the context is needed."""
        if request.context is not None:
            self.drafter.open(request.session_id, request.context)
        else:
            position = self.drafter.position(request.session_id)
            if position == 0 or position != request.position:
                return NeedContext(position)
            if request.new_token_ids:
                self.drafter.extend(request.session_id, request.new_token_ids)
        self._sessions.use(request.session_id, now)
        return None

    def _close(self, session_id: str) -> None:
        self._sessions.remove(session_id)
        self.drafter.close(session_id)

    def _count(self, reply: DraftBatchReply) -> None:
        drafts = [answer for answer in reply.drafts if isinstance(answer, Draft) and len(answer)]
        self._load = ServerLoad(
            reply.num_sessions,
            self._load.num_calls + 1,
            self._load.num_drafts + len(drafts),
            self._load.num_draft_tokens + sum(len(draft) for draft in drafts),
            self._load.busy_ms + reply.draft_ms,
        )


def _with_cost(
    answers: list[Draft | NeedContext], draft_ms: float
) -> tuple[Draft | NeedContext, ...]:
    num_drafts = sum(isinstance(answer, Draft) for answer in answers)
    return tuple(
        replace(answer, cost_ms=draft_ms / num_drafts)
        if isinstance(answer, Draft) and answer.cost_ms == 0.0
        else answer
        for answer in answers
    )
