"""What one drafter was asked for and gave, as its caller saw it. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

DONE_WITHOUT = frozenset({"late", "failed", "malformed", "need_context", "away"})
"""Statuses of a draft that was wanted and not had; ``empty`` is an answer."""


@dataclass(slots=True)
class DrafterTally:
    """Counts of one drafter since its client started.

    Attributes:
        statuses: Drafts wanted, by what became of them.
        num_draft_tokens: Tokens proposed.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    num_draft_tokens: int = 0

    def count(self, status: str, num_tokens: int) -> None:
        """Count one draft that was wanted."""
        self.statuses[status] += 1
        self.num_draft_tokens += num_tokens

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
