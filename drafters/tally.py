"""What one drafter was asked for, gave and cost, as its caller saw it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from drafters.api import Draft, DraftBatchReply
from drafters.calls import Call
from drafters.histogram import Histogram

DONE_WITHOUT = frozenset({"late", "failed", "malformed", "need_context", "away", "busy"})
"""Statuses of a draft that was wanted and not had; ``empty`` is an answer."""
MAX_DEPTH = 64
"""Deeper tokens count as of this depth."""


@dataclass(slots=True)
class DrafterTally:
    """Counts of one drafter since its client started.

    Attributes:
        statuses: Drafts wanted, by what became of them.
        num_draft_tokens: Tokens proposed.
        num_calls: Calls that were answered, too late ones included.
        num_sent_tokens: Tokens sent to the drafter in them.
        num_contexts: Whole contexts among what was sent.
        drafted: Tokens proposed, by depth; the first entry is depth 1.
        verified: Of those, the tokens that were verified.
        accepted: Of those, the tokens that were accepted.
        draft_ms: Time spent drafting, a call.
        queue_ms: Time a call waited for others in the drafter's process.
        transport_ms: The rest of the round trip.
        round_trip_ms: From sending a call to its answer.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    num_draft_tokens: int = 0
    num_calls: int = 0
    num_sent_tokens: int = 0
    num_contexts: int = 0
    drafted: list[int] = field(default_factory=lambda: [0] * MAX_DEPTH)
    verified: list[int] = field(default_factory=lambda: [0] * MAX_DEPTH)
    accepted: list[int] = field(default_factory=lambda: [0] * MAX_DEPTH)
    draft_ms: Histogram = field(default_factory=Histogram)
    queue_ms: Histogram = field(default_factory=Histogram)
    transport_ms: Histogram = field(default_factory=Histogram)
    round_trip_ms: Histogram = field(default_factory=Histogram)

    def count(self, status: str, draft: Draft) -> None:
        """Count one draft that was wanted."""
        self.statuses[status] += 1
        self.num_draft_tokens += len(draft)
        for depth in depths(draft):
            self.drafted[depth] += 1

    def count_verified(self, draft: Draft, accepted_nodes: Collection[int]) -> None:
        """Count the tokens of a draft, as far as it was verified, and which were accepted."""
        for node, depth in enumerate(depths(draft)):
            self.verified[depth] += 1
            self.accepted[depth] += node in accepted_nodes

    def count_call(self, call: Call, reply: DraftBatchReply, round_trip_ms: float) -> None:
        """Count what one call cost."""
        self.num_calls += 1
        for request in call.batch.requests:
            context = request.context
            self.num_contexts += context is not None
            self.num_sent_tokens += len(context.token_ids if context else request.new_token_ids)
        self.round_trip_ms.add(round_trip_ms)
        self.draft_ms.add(reply.draft_ms)
        self.queue_ms.add(reply.queue_ms)
        self.transport_ms.add(max(0.0, round_trip_ms - reply.draft_ms - reply.queue_ms))

    @property
    def num_drafts(self) -> int:
        """Drafts had that were not empty."""
        return self.statuses["ok"]

    @property
    def done_without(self) -> int:
        """How often a draft was wanted and not had."""
        return sum(self.statuses[reason] for reason in DONE_WITHOUT)

    def by_reason(self) -> dict[str, int]:
        """Return ``done_without`` by reason; reasons that did not occur are left out."""
        return {
            reason: self.statuses[reason]
            for reason in sorted(DONE_WITHOUT)
            if self.statuses[reason]
        }

    def cost(self) -> dict[str, Any]:
        """Return times and tokens as one plain dictionary; depths end with the deepest drafted."""
        deepest = max((depth + 1 for depth, count in enumerate(self.drafted) if count), default=0)
        return {
            "calls": self.num_calls,
            "contexts": self.num_contexts,
            "sent_tokens": self.num_sent_tokens,
            "empty": self.statuses["empty"],
            "drafted_by_depth": self.drafted[:deepest],
            "verified_by_depth": self.verified[:deepest],
            "accepted_by_depth": self.accepted[:deepest],
            "draft_ms": self.draft_ms.to_json(),
            "queue_ms": self.queue_ms.to_json(),
            "transport_ms": self.transport_ms.to_json(),
            "round_trip_ms": self.round_trip_ms.to_json(),
        }


def depths(draft: Draft) -> list[int]:
    """Return each node's depth, 0 for children of the last committed token, at most the deepest.

    >>> depths(Draft((5, 6, 7), (-1, 0, -1)))
    [0, 1, 0]
    """
    return [min(depth, MAX_DEPTH) - 1 for depth in draft.depths]
