"""Counts of rounds on their way to the ledger: added up in place, for every round is counted."""

from __future__ import annotations

from policy_service.api import Arm, ArmCounts, CellKey, Outcome
from policy_service.reward import add_round

Played = tuple[tuple[str, Arm, str], Outcome]
"""Context, arm and version of its drafter; and what came of the round."""


class Tallies:
    """Counts by cell. Not safe for use from several threads."""

    def __init__(self) -> None:
        """Start without counts."""
        self._sums: dict[tuple[str, Arm, str], list[int]] = {}
        self.num_rounds = 0

    def add(self, played: list[Played]) -> None:
        """Count rounds."""
        for key, outcome in played:
            sums = self._sums.get(key)
            if sums is None:
                sums = self._sums[key] = [0] * 8
            add_round(sums, outcome)
        self.num_rounds += len(played)

    def deltas(self) -> dict[CellKey, ArmCounts]:
        """Return what was counted."""
        return {
            CellKey(context, str(arm), version): ArmCounts(*sums)
            for (context, arm, version), sums in self._sums.items()
        }
