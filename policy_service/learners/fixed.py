"""Always the same arm: the baseline that regret is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policy_service.api import NONE, Arm, ArmPrior
from policy_service.errors import PolicyConfigError
from policy_service.statistics import NoState


@dataclass(frozen=True, slots=True)
class FixedArm:
    """Chooses one arm; while that is not allowed, ``none``, else the first that is.

    Attributes:
        arm: ``str`` of the arm, such as ``prompt_lookup:4``.
    """

    arm: str = "none"

    name: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        try:
            Arm.parse(self.arm)
        except (ValueError, AttributeError) as error:
            raise PolicyConfigError(f"arm of learner 'fixed': {error}") from None

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> NoState:
        """Return the empty state."""
        return NoState()

    def select(
        self, state: NoState, allowed: Sequence[Arm], rng: np.random.Generator
    ) -> tuple[Arm, str, float, Mapping[str, float]]:
        """Choose the arm."""
        arm = Arm.parse(self.arm)
        if arm in allowed:
            return arm, "fixed", 1.0, {}
        return NONE if NONE in allowed else allowed[0], "fixed arm not allowed", 1.0, {}

    def update(self, state: NoState, arm: Arm, reward: float) -> NoState:
        """Return the same state."""
        return state


LEARNER = FixedArm
