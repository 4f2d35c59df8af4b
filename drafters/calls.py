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
        timeout_s: Longest wait for the reply.
    """

    member: Member
    batch: DraftBatch
    timeout_s: float


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why a call has no reply.

    Attributes:
        reason: ``late``: not within its time, or an earlier call is still unanswered; ``failed``:
            the drafter raised; ``away``: the worker cannot be reached.
        message: The error, if there was one.
    """

    reason: Literal["late", "failed", "away"]
    message: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one call.

    Attributes:
        outcome: The reply, or why there is none.
        elapsed_ms: From the start of all calls to the reply, or to when it was given up.
        sent: Whether the worker was called at all.
    """

    outcome: DraftBatchReply | CallFailure
    elapsed_ms: float
    sent: bool = True


class Transport(Protocol):
    """Carries calls to the workers of one placement."""

    def send(self, member: Member, batch: DraftBatch) -> Future[DraftBatchReply]:
        """Send a call; the future may take for ever, and is never cancelled.

        Calls to one worker arrive in the order in which they were sent.
        """

    def reason(self, error: BaseException) -> Literal["failed", "away"]:
        """Return whether a call's error means that the worker is away, or failed at the call."""
