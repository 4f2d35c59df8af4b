"""What several learners need: an arm's sums, a choice among equals, a state that is empty.

This module knows no learner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from policy_service.api import Arm
from policy_service.errors import PolicyConfigError


@dataclass(frozen=True, slots=True)
class ArmSums:
    """Pulls of one arm and what they earned together; pooled pulls may be fractions.

    Attributes:
        pulls: Number of pulls; an arm is tried exactly if it is above 0, whatever it earned.
        reward: Sum of their rewards.
    """

    pulls: float
    reward: float

    @property
    def mean(self) -> float:
        """Mean reward of a tried arm."""
        return self.reward / self.pulls

    def plus(self, reward: float) -> ArmSums:
        """Return the sums after one more pull."""
        return ArmSums(self.pulls + 1, self.reward + reward)


UNTRIED = ArmSums(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class NoState:
    """The state of a learner that learns nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gave."""
        return cls()


def highest(values: Mapping[Arm, float], rng: np.random.Generator) -> tuple[Arm, float]:
    """Return the arm with the highest value, equals drawn uniformly, and its probability.

    The generator is only used if there are equals.
    """
    best = max(values.values())
    arms = [arm for arm, value in values.items() if value == best]
    if len(arms) == 1:
        return arms[0], 1.0
    return arms[int(rng.integers(len(arms)))], 1.0 / len(arms)


def check_number(learner: str, name: str, value: object, above: float, at_most: float) -> None:
    """Check that a learner's parameter is a number in ``(above, at_most]``.

    Raises:
        PolicyConfigError: If it is not.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not above < float(str(value)) <= at_most:
        raise PolicyConfigError(
            f"{name} of learner {learner!r} must be a number above {above} and at most {at_most}, "
            f"got {value!r}"
        )
