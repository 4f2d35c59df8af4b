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
from typing import ClassVar

import numpy as np

from policy_service.api import Arm, ArmPrior, Choice
from policy_service.statistics import ArmSums, ArmValues, SumsState, check_number, highest_of


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

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> SumsState:
        """Return the state of a new prompt: the priors' pulls at the priors' means."""
        return SumsState.seeded(arms, priors)

    def select(self, state: SumsState, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Choose the first untried arm, or else the one with the highest bound.

        The estimates are the bounds of the tried arms.
        """
        sums = state.of(allowed)
        length = self.L or state.length(allowed)
        bounds = self._bounds([item for item in sums if item.pulls > 0], len(sums), length)
        if len(bounds) == len(sums):
            best, propensity = highest_of(allowed, bounds, rng)
            return best, "highest bound", propensity, ArmValues(allowed, bounds)
        pairs = zip(allowed, sums, strict=True)
        untried = [arm for arm, item in pairs if item.pulls <= 0]
        tried = [arm for arm in allowed if arm not in untried]
        return untried[0], "first pull", 1.0, ArmValues(tried, bounds)

    def update(self, state: SumsState, arm: Arm, reward: float) -> SumsState:
        """Return the state after one more pull."""
        return state.plus(arm, reward)

    def _bounds(self, tried: Sequence[ArmSums], num_arms: int, length: float) -> list[float]:
        """Return the upper confidence bound of every tried arm.

        This is ``mean + scale * confidence_radius``, with what arms share computed once.
        """
        rounds = max(1.0, sum([item.pulls for item in tried]))
        shared = 1 + 2 * math.log(num_arms * rounds**2 / self.delta)
        factor = self.scale * length / 2
        return [
            item.reward / item.pulls
            + factor * math.sqrt((1 + item.pulls) * (shared + math.log1p(item.pulls))) / item.pulls
            for item in tried
        ]


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
