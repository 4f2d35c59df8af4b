"""Answer calls to a drafter: keep its sessions in step with the callers', and bounded.

Pure: works on any ``Drafter``, in a worker or inside a Verifier; the clock is passed in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from drafters.api import (
    Busy,
    ClosedSession,
    Draft,
    DraftBatch,
    DraftBatchReply,
    Drafter,
    DraftRequest,
    NeedContext,
)
from drafters.backlog import Backlog
from drafters.features import FeatureDrafter, needs_hidden_states
from drafters.replay import Replayer
from drafters.session_table import SessionTable
from drafters.usefulness import Usefulness

Answer = Draft | NeedContext | Busy


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What a draft server did since it started.

    Attributes:
        num_sessions: Sessions open now.
        num_calls: Calls answered.
        num_drafts: Drafts that were not empty.
        num_draft_tokens: Tokens in them.
        busy_ms: Time spent in calls.
        num_busy: Requests not taken on for lack of room.
        num_closing: Ended sessions that are still to be closed.
        num_followed: Sequences followed now.
        num_unfollowed: Sequences that could not be followed to their end.
        queue_ms: Time that calls waited for others, added up.
        num_judged: Drafts whose first place a token has taken, empty drafts included.
        num_useful: Of those, the drafts that had that token.
    """

    num_sessions: int = 0
    num_calls: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    busy_ms: float = 0.0
    num_busy: int = 0
    num_closing: int = 0
    num_followed: int = 0
    num_unfollowed: int = 0
    queue_ms: float = 0.0
    num_judged: int = 0
    num_useful: int = 0


class DraftServer:
    """A drafter and its sessions, answering whole calls.

    A session that is not open, or not at the position the caller names, is never guessed at: its
    answer is ``NeedContext``. Where there is no room for one more session it is ``Busy``. What need
    not be done before the answer is put off: ``tidy`` does it, one piece at a time. Calls may come
    from one thread, ``tidy`` and ``sweep`` from others.

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
        self._replayer = Replayer(drafter)
        self._usefulness = Usefulness()
        self._backlog = Backlog(self._close, self._replayer, clock)
        self._feature_drafter = (
            cast(FeatureDrafter, drafter) if needs_hidden_states(drafter) else None
        )
        self._lock = threading.Lock()
        self._load = ServerLoad()

    def answer(self, batch: DraftBatch, queue_ms: float = 0.0) -> DraftBatchReply:
        """Bring each session up to date and propose for it; note what has ended.

        The time the call took is shared out evenly as cost among drafts that name none.

        Args:
            batch: The call.
            queue_ms: How long it has waited; goes into the reply.
        """
        with self._lock:
            started = self._clock()
            for closed in batch.closed:
                self._sessions.remove(closed.session_id)
                self._backlog.close_later(closed)
            for followed in batch.followed:
                self._backlog.follow_later(followed)
            answers = self._answers(batch, started)
            for session_id in self._sessions.take_surplus(started):
                self._backlog.close_later(ClosedSession(session_id))
            draft_ms = (self._clock() - started) * 1e3
            reply = DraftBatchReply(
                self.incarnation,
                _with_cost(answers, draft_ms),
                draft_ms,
                len(self._sessions),
                queue_ms,
                self._replayer.take_counts(),
            )
            self._count(reply)
            return reply

    @property
    def has_backlog(self) -> bool:
        """Whether something was put off."""
        return self._backlog.has_work

    def tidy(self) -> float | None:
        """Do one piece of what was put off, unless a call is running.

        Returns:
            In how many seconds to do the next; None if nothing is left to do.
        """
        if not self._lock.acquire(blocking=False):
            return 0.0
        try:
            return self._backlog.do_one()
        finally:
            self._lock.release()

    def sweep(self) -> None:
        """Have sessions closed that are idle too long, unless a call is running."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            now = self._clock()
            self._replayer.forget_idle(now)
            for session_id in self._sessions.take_surplus(now):
                self._backlog.close_later(ClosedSession(session_id))
        finally:
            self._lock.release()

    def load(self) -> ServerLoad:
        """Return what the server did so far; never waits for a running call."""
        return replace(
            self._load,
            num_sessions=len(self._sessions),
            num_closing=self._backlog.num_closing,
            num_followed=len(self._replayer),
            num_unfollowed=self._replayer.num_dropped,
            num_judged=self._usefulness.num_judged,
            num_useful=self._usefulness.num_useful,
        )

    def _answers(self, batch: DraftBatch, now: float) -> list[Answer]:
        refusals = [self._catch_up(request, now) for request in batch.requests]
        wanted = [
            (request.session_id, request.max_tokens)
            for request, refusal in zip(batch.requests, refusals, strict=True)
            if refusal is None
        ]
        proposed = self.drafter.propose(wanted) if wanted else []
        for (session_id, _), draft in zip(wanted, proposed, strict=True):
            self._usefulness.proposed(session_id, draft)
        drafts = iter(proposed)
        return [next(drafts) if refusal is None else refusal for refusal in refusals]

    def _catch_up(self, request: DraftRequest, now: float) -> NeedContext | Busy | None:
        """Bring the session to where the caller is, or say why not."""
        self._backlog.close_now(request.session_id)
        if request.context is not None:
            if not self._sessions.has_room(request.session_id, now):
                return Busy("sessions")
            self._usefulness.forget(request.session_id)
            self.drafter.open(request.session_id, request.context)
            self._add_states(request, len(request.context.token_ids) - 1)
        else:
            position = self.drafter.position(request.session_id)
            if position == 0 or position != request.position:
                return NeedContext(position)
            if request.new_token_ids:
                self._usefulness.came(request.session_id, request.new_token_ids[0])
                self.drafter.extend(request.session_id, request.new_token_ids)
                self._add_states(request, len(request.new_token_ids))
        self._sessions.use(request.session_id, now)
        return None

    def _add_states(self, request: DraftRequest, num_rows: int) -> None:
        if self._feature_drafter is None:
            return
        states = request.hidden_states
        if states is None or states.ndim != 2 or len(states) != num_rows:
            found = "none" if states is None else f"shape {list(states.shape)}"
            raise ValueError(f"expected hidden states of {num_rows} tokens, found {found}")
        self._feature_drafter.add_hidden_states(request.session_id, states)

    def _close(self, closed: ClosedSession) -> None:
        self._usefulness.forget(closed.session_id)
        try:
            self._add_tail(closed)
        finally:
            self.drafter.close(closed.session_id)

    def _add_tail(self, closed: ClosedSession) -> None:
        """Complete a session that ends, so that a method which learns from it has all of it."""
        if closed.position == 0 or self._feature_drafter is not None:
            return
        had = self.drafter.position(closed.session_id) - closed.position
        if 0 <= had < len(closed.token_ids):
            self.drafter.extend(closed.session_id, closed.token_ids[had:])

    def _count(self, reply: DraftBatchReply) -> None:
        drafts = [answer for answer in reply.drafts if isinstance(answer, Draft) and len(answer)]
        num_busy = sum(isinstance(answer, Busy) for answer in reply.drafts)
        load = self._load
        self._load = replace(
            load,
            num_calls=load.num_calls + 1,
            num_drafts=load.num_drafts + len(drafts),
            num_draft_tokens=load.num_draft_tokens + sum(len(draft) for draft in drafts),
            busy_ms=load.busy_ms + reply.draft_ms,
            queue_ms=load.queue_ms + reply.queue_ms,
            num_busy=load.num_busy + num_busy,
        )


def _with_cost(answers: list[Answer], draft_ms: float) -> tuple[Answer, ...]:
    num_drafts = sum(isinstance(answer, Draft) for answer in answers)
    return tuple(
        replace(answer, cost_ms=draft_ms / num_drafts)
        if isinstance(answer, Draft) and answer.cost_ms == 0.0
        else answer
        for answer in answers
    )
