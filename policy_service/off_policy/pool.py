"""What the pool would have known: counts of a log's earlier replies, and its step times. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from policy_service.api import Arm, ArmPrior, CellKey, RewardKind, Snapshot
from policy_service.contexts import context_chain
from policy_service.decision_log.records import RoundRecord
from policy_service.priors import arm_priors
from policy_service.reward import is_pull, reward
from policy_service.step_times import StepTimes


class LogPool:
    """Pools the rounds of replies, as the Policy does, to seed the learners of later ones.

    Args:
        kind: Reward that learners are paid.
        strength: Most pulls that a prior is worth; 0 for no priors.
        shrinkage: Pulls of the parent context mixed into each one.
    """

    def __init__(self, kind: RewardKind, strength: float, shrinkage: float) -> None:
        self._kind: RewardKind = kind
        self._strength, self._shrinkage = strength, shrinkage
        self._cells: dict[CellKey, tuple[float, float]] = {}

    def add(self, rounds: Iterable[RoundRecord]) -> None:
        """Count a reply's rounds, in all of its contexts."""
        for record in rounds:
            if is_pull(record.outcome):
                earned, arm = reward(record.outcome, self._kind), str(record.decision.arm)
                for context in context_chain(record.features):
                    key = CellKey(context, arm)
                    pulls, total = self._cells.get(key, (0.0, 0.0))
                    self._cells[key] = pulls + 1, total + earned

    def priors(self, record: RoundRecord, arms: Iterable[Arm]) -> Mapping[Arm, ArmPrior]:
        """Return what a reply with this first round would start from."""
        if not self._strength:
            return {}
        return arm_priors(
            Snapshot(1, record.time, "", self._cells),
            context_chain(record.features),
            dict.fromkeys(arms, ""),
            shrinkage=self._shrinkage,
            strength=self._strength,
        )


def logged_step_times(rounds: Iterable[RoundRecord]) -> StepTimes | None:
    """Return the mean times of steps by rows, as far as the rounds show them; None if they do not.

    A table over rows only: what each sequence and each cached token adds is in its means.
    """
    sums: dict[int, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for record in rounds:
        outcome = record.outcome
        rows = outcome.batch_size * (1 + outcome.num_verified)
        alike_ms = outcome.alike_ms - outcome.draft_wait_ms
        for at, ms in ((outcome.batch_size, outcome.plain_ms), (rows, alike_ms)):
            if ms > 0:
                count, total = sums[at]
                sums[at] = count + 1, total + ms
    if not sums:
        return None
    highest, table = 0.0, {}
    for at in sorted(sums):
        count, total = sums[at]
        highest = max(highest, total / count)
        table[at] = highest
    return StepTimes(tuple(table), tuple(table.values()))
