"""Upper confidence bounds that neighbouring speculation lengths share.

One more drafted token earns at most one more token, so the means of two lengths of the same drafter
differ by at most ``slope`` times the difference of the lengths, and plain decoding is length 0 of
every drafter. BanditSpec names this structure as future work. An upper bound on one arm is then
also one on its neighbours, and each arm takes the tightest (Lipschitz bandits with finitely many
arms: Magureanu, Combes, Proutiere 2014, arXiv 1405.4758)::

    u_j     = min(gamma_j + 1, mean_j + scale * L * sqrt(ln(1 + t) / n_j))
    index_i = min over j of  u_j + slope * distance(i, j)

An arm without pulls has ``u_j = gamma_j + 1``. ``distance`` is the difference in length for arms of
one drafter and the sum of the lengths for arms of two, which are connected through plain decoding.
``scale = 1`` is the bound of a reward that is sub-Gaussian with parameter ``L / 2``; it is about as
wide as the paper's, hence the default.

An arm is not tried for the sake of having been tried: what its neighbours say may do. For the time
reward ``slope = 1`` holds upwards; downwards only as long as a drafted token costs less than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from policy_service.api import Arm, ArmPrior, Choice
from policy_service.statistics import ArmSums, ArmValues, SumsState, check_number, highest_of


@dataclass(frozen=True, slots=True)
class LipschitzUcb:
    """The learner.

    Attributes:
        slope: Most that the mean reward changes with one more token of speculation length.
        scale: Factor on the radius.
    """

    slope: float = 1.0
    scale: float = 0.25

    name: ClassVar[str] = "lipschitz"

    def __post_init__(self) -> None:
        check_number(self.name, "slope", self.slope, above=0, at_most=1000)
        check_number(self.name, "scale", self.scale, above=0, at_most=1000)

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> SumsState:
        """Return the state of a new prompt: the priors' pulls at the priors' means."""
        return SumsState.seeded(arms, priors)

    def select(self, state: SumsState, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Choose the arm with the highest index; the estimates are the indices."""
        own = self._own_bounds(state.of(allowed), allowed, state.length(allowed))
        apart = distances(tuple(allowed))
        indices = np.min(np.array(own) + self.slope * apart, axis=1).tolist()
        best, propensity = highest_of(allowed, indices, rng)
        return best, "highest index", propensity, ArmValues(allowed, indices)

    def update(self, state: SumsState, arm: Arm, reward: float) -> SumsState:
        """Return the state after one more pull."""
        return state.plus(arm, reward)

    def _own_bounds(self, sums: Sequence[ArmSums], arms: Sequence[Arm], length: int) -> list[float]:
        """Return what each arm's own pulls say of it."""
        spread = self.scale * length * math.sqrt(math.log1p(sum(item.pulls for item in sums)))
        return [
            min(arm.gamma + 1.0, item.reward / item.pulls + spread / math.sqrt(item.pulls))
            if item.pulls > 0
            else arm.gamma + 1.0
            for arm, item in zip(arms, sums, strict=True)
        ]


@lru_cache(maxsize=256)
def distances(arms: tuple[Arm, ...]) -> NDArray[np.float64]:
    """Return how many tokens apart the arms are, ``[num_arms, num_arms]``.

    >>> distances((Arm("", 0), Arm("suffix", 2), Arm("suffix", 8), Arm("rest", 4)))[1].tolist()
    [2.0, 0.0, 6.0, 6.0]
    """
    rows = [[_distance(one, other) for other in arms] for one in arms]
    return np.array(rows, dtype=np.float64)


def _distance(one: Arm, other: Arm) -> int:
    if one.drafter == other.drafter or 0 in (one.gamma, other.gamma):
        return abs(one.gamma - other.gamma)
    return one.gamma + other.gamma


LEARNER = LipschitzUcb
