"""Leaving a faulty drafter alone for a while, within one sequence.

A round whose drafter did not answer teaches the learner nothing, so the learner would choose the
same arm again at once, and wait for it again. Therefore a sequence does without the drafter for 1
round after the first fault in a row, then for 2, 4 and so on to 32, and tries it again after that:
no drafter is given up for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST_ROUNDS = 32


@dataclass(frozen=True, slots=True)
class Suspensions:
    """Which drafters a sequence does without, and until which of its rounds.

    Attributes:
        entries: For each drafter with a fault the first round in which it may be asked again, and
            for how many rounds it was suspended.
    """

    entries: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def blocks(self, drafter: str, round_index: int) -> bool:
        """Whether the drafter must not be asked in this round."""
        entry = self.entries.get(drafter)
        return entry is not None and round_index < entry[0]

    def after_fault(self, drafter: str, round_index: int) -> Suspensions:
        """Return the suspensions after the drafter failed in round ``round_index``."""
        _, rounds = self.entries.get(drafter, (0, 0))
        rounds = min(LONGEST_ROUNDS, max(1, 2 * rounds))
        return Suspensions({**self.entries, drafter: (round_index + 1 + rounds, rounds)})

    def after_answer(self, drafter: str) -> Suspensions:
        """Return the suspensions after the drafter answered."""
        if drafter not in self.entries:
            return self
        return Suspensions({name: entry for name, entry in self.entries.items() if name != drafter})
