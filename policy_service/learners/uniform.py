"""Any arm with the same probability: what learners must beat, and unbiased exploration data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policy_service.api import Arm, ArmPrior
from policy_service.statistics import NoState


@dataclass(frozen=True, slots=True)
class UniformChoice:
    """Draws one of the allowed arms uniformly, every round anew."""

    name: ClassVar[str] = "uniform"

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> NoState:
        """Return the empty state."""
        return NoState()

    def select(
        self, state: NoState, allowed: Sequence[Arm], rng: np.random.Generator
    ) -> tuple[Arm, str, float, Mapping[str, float]]:
        """Draw an arm."""
        return allowed[int(rng.integers(len(allowed)))], "drawn uniformly", 1 / len(allowed), {}

    def update(self, state: NoState, arm: Arm, reward: float) -> NoState:
        """Return the same state."""
        return state


LEARNER = UniformChoice
