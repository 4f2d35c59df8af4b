"""Calls to drafter workers, what comes of them, and what carries them. Pure."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, Protocol

from drafters.api import DraftBatch, DraftBatchReply
from drafters.members import Member


@dataclass(frozen=True, slots=True)
class Call:
    """One call to one worker.

    Attributes:
        member: Whom to call.
        batch: What to send.
        timeout_s: Longest wait for the reply, from the start of the step's calls.
        limit_s: A worker that has not answered so long after that start is at fault; None:
            ``timeout_s``.
    """

    member: Member
    batch: DraftBatch
    timeout_s: float
    limit_s: float | None = None

    @property
    def opens(self) -> bool:
        """Whether it carries a context."""
        return any(request.context is not None for request in self.batch.requests)


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why a call has no reply.

    Attributes:
        reason: ``late``: not within its time, or an earlier call is still unanswered; ``failed``:
            the drafter raised; ``away``: the worker cannot be reached.
        message: The error, if there was one.
        is_fault: Whether it speaks against the worker. One that is late for a step which could
            not wait longer is not at fault.
    """

    reason: Literal["late", "failed", "away"]
    message: str = ""
    is_fault: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one call.

    Attributes:
        outcome: The reply, or why there is none.
        elapsed_ms: From the start of all calls to the reply, or to when it was given up.
        sent: Whether the worker was called at all.
        round_trip_ms: From sending this call to the reply; 0 if there is none.
    """

    outcome: DraftBatchReply | CallFailure
    elapsed_ms: float
    sent: bool = True
    round_trip_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """An answer that came after its step had gone on.

    Attributes:
        call: The call.
        outcome: The reply, or the failure.
        round_trip_ms: From sending the call to the answer.
    """

    call: Call
    outcome: DraftBatchReply | CallFailure
    round_trip_ms: float


class Transport(Protocol):
    """Carries calls to the workers of one placement."""

    def send(self, member: Member, batch: DraftBatch) -> Future[DraftBatchReply]:
        """Send a call; the future may take for ever, and is never cancelled.

        Calls to one worker arrive in the order in which they were sent, if each is sent after the
        one before it was answered.
        """

    def reason(self, error: BaseException) -> Literal["failed", "away"]:
        """Return whether a call's error means that the worker is away, or failed at the call."""
