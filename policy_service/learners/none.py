"""Never speculates: the baseline that everything is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policy_service.api import NONE, Arm, ArmPrior
from policy_service.statistics import NoState


@dataclass(frozen=True, slots=True)
class PlainDecoding:
    """Chooses ``none``; where that is not allowed, the first arm that is."""

    name: ClassVar[str] = "none"

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> NoState:
        """Return the empty state."""
        return NoState()

    def select(
        self, state: NoState, allowed: Sequence[Arm], rng: np.random.Generator
    ) -> tuple[Arm, str, float, Mapping[str, float]]:
        """Choose plain decoding."""
        if NONE in allowed:
            return NONE, "plain decoding", 1.0, {}
        return allowed[0], "plain decoding not allowed", 1.0, {}

    def update(self, state: NoState, arm: Arm, reward: float) -> NoState:
        """Return the same state."""
        return state


LEARNER = PlainDecoding
