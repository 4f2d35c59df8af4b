"""Make sense of what came of a call: for each sequence a draft and a status. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafters.api import EMPTY_DRAFT, Busy, Draft, DraftBatchReply, DraftRequest, NeedContext
from drafters.calls import CallFailure
from drafters.checking import malformed_draft, malformed_reply


@dataclass(frozen=True, slots=True)
class Reading:
    """What a call gave.

    Attributes:
        results: For each request its draft and status (see ``DraftResult``).
        failure: Why the worker failed as a whole; None if it did its work.
        problem: In words, what was malformed; None if nothing was.
        busy: Why it did not take on some of the requests; None if it did.
    """

    results: list[tuple[Draft, str]]
    failure: str | None = None
    problem: str | None = None
    busy: str | None = None


def read_outcome(
    outcome: DraftBatchReply | CallFailure,
    requests: Sequence[DraftRequest],
    *,
    is_stale: bool,
    vocab_size: int | None,
) -> Reading:
    """Check an outcome and return what is usable of it.

    Args:
        outcome: What came.
        requests: What was asked.
        is_stale: The reply is from another incarnation than the one that had the sessions: only
            drafts that were asked for with the whole context count.
        vocab_size: Token ids must be smaller; None to accept any.
    """
    if isinstance(outcome, CallFailure):
        failure = outcome.reason if outcome.is_fault else None
        return Reading([(EMPTY_DRAFT, outcome.reason)] * len(requests), failure)
    problem = malformed_reply(outcome, len(requests))
    if problem is not None:
        return Reading([(EMPTY_DRAFT, "malformed")] * len(requests), "malformed", problem)
    results: list[tuple[Draft, str]] = []
    busy: str | None = None
    for request, draft in zip(requests, outcome.drafts, strict=True):
        if isinstance(draft, NeedContext) or (is_stale and request.context is None):
            results.append((EMPTY_DRAFT, "need_context"))
        elif isinstance(draft, Busy):
            busy = draft.reason
            results.append((EMPTY_DRAFT, "busy"))
        elif wrong := malformed_draft(draft, request.max_tokens, vocab_size):
            problem = wrong
            results.append((EMPTY_DRAFT, "malformed"))
        else:
            results.append((draft, "ok" if len(draft) else "empty"))
    return Reading(results, None if problem is None else "malformed", problem, busy)
