"""A table from batch size to speculation length, as vLLM's dynamic speculative decoding has it.

The more sequences share a step, the less room there is for drafts, so the operator writes down how
many tokens to draft for which batch sizes, ``[first, last, gamma]`` a row. Nothing is learnt. This
is a rule to beat, not a learner; vLLM's example table is the default.

The arm taken is that of one drafter with the largest speculation length up to the table's; plain
decoding where there is none. A batch larger than the table goes by the last row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from policy_service.abilities import RoundContext
from policy_service.api import NONE, Arm, ArmPrior, Choice
from policy_service.errors import PolicyConfigError
from policy_service.statistics import NoState, check_drafter

_EXAMPLE = ((1, 64, 3), (65, 128, 1), (129, 512, 0))


@dataclass(frozen=True, slots=True)
class BatchTable:
    """The rule.

    Attributes:
        table: Rows of first batch size, last batch size and speculation length; the first row
            begins with 1, and each other one where the row before it ends.
        drafter: The drafter to use; by default the first one allowed.
    """

    table: Sequence[Sequence[int]] = _EXAMPLE
    drafter: str | None = None

    name: ClassVar[str] = "batch_table"

    def __post_init__(self) -> None:
        check_drafter(self.name, "drafter", self.drafter)
        if not _is_table(self.table):
            raise PolicyConfigError(
                f"table of learner {self.name!r} must be rows [first, last, gamma] of whole "
                f"numbers, from batch size 1 without a gap, got {self.table!r}"
            )

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> NoState:
        """Return the empty state."""
        return NoState()

    def select(self, state: NoState, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Choose by the row for a single sequence."""
        return self.select_in(state, RoundContext(tuple(allowed)), rng)

    def select_in(self, state: NoState, context: RoundContext, rng: np.random.Generator) -> Choice:
        """Choose by the row for the step's batch size."""
        gamma = self._gamma(context.batch_size)
        reason = f"table: {gamma} at batch size {context.batch_size}"
        return _arm(context.allowed, self.drafter, gamma), reason, 1.0, {}

    def update(self, state: NoState, arm: Arm, reward: float) -> NoState:
        """Return the same state."""
        return state

    def _gamma(self, batch_size: int) -> int:
        for _, last, gamma in self.table:
            if batch_size <= last:
                return gamma
        return self.table[-1][2]


def _arm(allowed: Sequence[Arm], drafter: str | None, gamma: int) -> Arm:
    """Return the drafter's longest arm up to ``gamma``, else plain decoding, else the shortest."""
    drafters = [arm.drafter for arm in allowed if arm != NONE]
    name = drafter if drafter is not None else next(iter(drafters), "")
    fitting = [arm for arm in allowed if arm.drafter == name and arm.gamma <= gamma]
    if fitting and gamma > 0:
        return max(fitting, key=lambda arm: arm.gamma)
    return min(allowed, key=lambda arm: arm.gamma)


def _is_table(table: object) -> bool:
    if not isinstance(table, Sequence) or isinstance(table, str) or not table:
        return False
    if not all(_is_row(row) for row in table):
        return False
    starts_at_one = table[0][0] == 1
    return bool(starts_at_one and all(row[1] + 1 == after[0] for row, after in pairwise(table)))


def _is_row(row: object) -> bool:
    if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != 3:
        return False
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in row):
        return False
    return bool(1 <= row[0] <= row[1] and row[2] >= 0)


LEARNER = BatchTable
