"""Thompson sampling with Gaussian posteriors (Agrawal and Goyal 2013, arXiv 1209.3353).

A value is drawn for each arm from its posterior, and the arm with the highest is played::

    value_i ~ N( (R_i + m) / (n_i + 1),  scale^2 (L + 1)^2 / (n_i + 1) )

``n_i`` are the pulls of the arm and ``R_i`` what they earned, a pooled prior's pulls included, and
``L`` is the largest speculation length, so that rewards lie in ``[0, L + 1]``. In the source
rewards lie in [0, 1], ``scale`` is 1 and the imagined first pull earns ``m = 0``; here it earns the
middle of the range, and the default of ``scale`` is nearer to the spread that rewards have.

With ``discount`` below 1 all sums are multiplied by it every round (Raj and Kalyani 2017, arXiv
1707.09727): the past fades, and the learner follows rewards that drift.

The propensity, the probability that this arm's value is the highest, has no closed form; it is
integrated to within 0.01. BanditSpec rejects Thompson sampling for its computation per round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from policy_service.api import Arm, ArmPrior, Choice
from policy_service.statistics import ArmSums, ArmValues, SumsState, check_number

_STEP = 0.125
_NODES = np.arange(-5.0, 5.0 + _STEP / 2, _STEP)
_WEIGHTS = np.exp(-(_NODES**2) / 2) * (_STEP / math.sqrt(2 * math.pi))
_LEAST_PROPENSITY = 1e-9
_LARGEST_EXPONENT = 600.0


@dataclass(frozen=True, slots=True)
class ThompsonSampling:
    """The learner.

    Attributes:
        scale: Standard deviation of one reward, as a share of the range of rewards.
        discount: What a pull weighs after each further round, in (0, 1].
    """

    scale: float = 0.25
    discount: float = 1.0

    name: ClassVar[str] = "thompson"

    def __post_init__(self) -> None:
        check_number(self.name, "scale", self.scale, above=0, at_most=1000)
        check_number(self.name, "discount", self.discount, above=0, at_most=1)

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> SumsState:
        """Return the state of a new prompt: the priors' pulls at the priors' means."""
        return SumsState.seeded(arms, priors)

    def select(self, state: SumsState, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Draw a value for each arm and choose the highest; the estimates are posterior means."""
        top = state.length(allowed) + 1
        sums = state.of(allowed)
        weights = np.array([item.pulls + 1 for item in sums])
        means = (np.array([item.reward for item in sums]) + top / 2) / weights
        deviations = self.scale * top / np.sqrt(weights)
        best = int(np.argmax(means + deviations * rng.standard_normal(len(sums))))
        propensity = probability_of_highest(best, means, deviations)
        return allowed[best], "highest draw", propensity, ArmValues(allowed, means.tolist())

    def update(self, state: SumsState, arm: Arm, reward: float) -> SumsState:
        """Return the state after one more pull."""
        if self.discount < 1:
            faded = {
                known: ArmSums(item.pulls * self.discount, item.reward * self.discount)
                for known, item in state.sums.items()
            }
            state = replace(state, sums=faded)
        return state.plus(arm, reward)


def probability_of_highest(
    index: int, means: NDArray[np.float64], deviations: NDArray[np.float64]
) -> float:
    """Return the probability that one of several independent Gaussian draws is the highest.

    By the trapezoidal rule over that draw. The normal distribution function is approximated by a
    logistic one of a cubic, to within 0.00014 (Bowling et al. 2009).

    >>> round(probability_of_highest(0, np.array([1.0, 1.0]), np.array([1.0, 2.0])), 3)
    0.5
    """
    if len(means) == 1:
        return 1.0
    values = means[index] + deviations[index] * _NODES
    others = np.arange(len(means)) != index
    standardised = (values[:, None] - means[others]) / deviations[others]
    exponents = standardised * (-1.5976 - 0.07056 * standardised * standardised)
    bounded = np.minimum(exponents, _LARGEST_EXPONENT / len(means))
    chances = 1 / np.prod(1 + np.exp(bounded), axis=1)
    return float(min(1.0, max(_LEAST_PROPENSITY, _WEIGHTS @ chances)))


LEARNER = ThompsonSampling
