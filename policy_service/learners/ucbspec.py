"""UCBSpec, Algorithm 4 of BanditSpec (arXiv 2505.15141), with its own radius.

Each arm is pulled once, in order; then the one with the highest upper confidence bound::

    mean_i + (L / 2) * sqrt((1 + n) / n^2 * (1 + 2 * ln(K * t^2 * sqrt(1 + n) / delta)))

with ``n`` the pulls of the arm, ``t`` those of all arms and ``K`` the number of arms. The paper
leaves ties open; here they are drawn uniformly. Two things are ours: an arm with a pooled prior
starts with the prior's pulls at the prior's mean, so it needs no first pull, and ``scale``
multiplies the radius (1 is the paper's, which is wide for replies of some hundred tokens).

Where only some arms are allowed, the choice is the one that the algorithm would make had there
never been others: ``K`` and ``t`` count allowed arms only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from policy_service.api import Arm, ArmPrior
from policy_service.statistics import UNTRIED, ArmSums, check_number, highest


@dataclass(frozen=True, slots=True)
class UcbSpecState:
    """Sums of one prompt's arms.

    Attributes:
        largest_gamma: Largest speculation length among the arms the prompt started with.
        sums: Pulls and rewards by arm, priors included.
    """

    largest_gamma: int
    sums: Mapping[Arm, ArmSums]

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        sums = {str(arm): [item.pulls, item.reward] for arm, item in self.sums.items()}
        return {"largest_gamma": self.largest_gamma, "sums": sums}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gave."""
        sums = {Arm.parse(arm): ArmSums(*item) for arm, item in values["sums"].items()}
        return cls(values["largest_gamma"], sums)


@dataclass(frozen=True, slots=True)
class UcbSpec:
    """The learner; its parameters are those of the paper.

    Attributes:
        delta: Confidence parameter, in (0, 1]; the paper's proof takes 0.5.
        L: Largest speculation length; by default the largest gamma among the arms.
        scale: Factor on the radius; 1 is the paper's.
    """

    delta: float = 0.5
    L: int | None = None
    scale: float = 1.0

    name: ClassVar[str] = "ucbspec"

    def __post_init__(self) -> None:
        check_number(self.name, "delta", self.delta, above=0, at_most=1)
        check_number(self.name, "scale", self.scale, above=0, at_most=1000)
        if self.L is not None:
            check_number(self.name, "L", self.L, above=0, at_most=1000)

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> UcbSpecState:
        """Return the state of a new prompt: the priors' pulls at the priors' means."""
        sums = {
            arm: ArmSums(prior.pulls, prior.pulls * prior.mean)
            for arm, prior in priors.items()
            if prior.pulls > 0
        }
        return UcbSpecState(max((arm.gamma for arm in arms), default=0), sums)

    def select(
        self, state: UcbSpecState, allowed: Sequence[Arm], rng: np.random.Generator
    ) -> tuple[Arm, str, float, Mapping[str, float]]:
        """Choose the first untried arm, or else the one with the highest bound.

        The estimates are the bounds of the tried arms.
        """
        sums = {arm: state.sums.get(arm, UNTRIED) for arm in allowed}
        bounds = self._bounds(state.largest_gamma, sums)
        estimates = {str(arm): bound for arm, bound in bounds.items()}
        for arm in allowed:
            if arm not in bounds:
                return arm, "first pull", 1.0, estimates
        best, propensity = highest(bounds, rng)
        return best, "highest bound", propensity, estimates

    def update(self, state: UcbSpecState, arm: Arm, reward: float) -> UcbSpecState:
        """Return the state after one more pull."""
        sums = {**state.sums, arm: state.sums.get(arm, UNTRIED).plus(reward)}
        return UcbSpecState(state.largest_gamma, sums)

    def _bounds(self, largest_gamma: int, sums: Mapping[Arm, ArmSums]) -> dict[Arm, float]:
        """Return the upper confidence bound of every tried arm."""
        length = self.L or max(largest_gamma, *(arm.gamma for arm in sums), 1)
        total = sum(item.pulls for item in sums.values())
        return {
            arm: item.mean
            + self.scale * confidence_radius(item.pulls, total, len(sums), length, self.delta)
            for arm, item in sums.items()
            if item.pulls > 0
        }


def confidence_radius(
    pulls: float, total_pulls: float, num_arms: int, length: float, delta: float
) -> float:
    """Return the radius of Algorithm 4 (self-normalised, Abbasi-Yadkori et al. 2011, Lemma 6).

    Less than one pull in all, which only priors can make, counts as one.

    >>> round(confidence_radius(pulls=5, total_pulls=20, num_arms=4, length=4, delta=0.5), 1)
    4.3
    """
    rounds = max(1.0, total_pulls)
    inner = 1 + 2 * math.log(num_arms * rounds**2 * math.sqrt(1 + pulls) / delta)
    return length / 2 * math.sqrt((1 + pulls) / pulls**2 * inner)


LEARNER = UcbSpec
