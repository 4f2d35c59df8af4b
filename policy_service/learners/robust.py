"""For rewards of which some are corrupted: Tsallis-INF (Zimmert and Seldin, JMLR 22(28), 2021).

BanditSpec assumes rewards that all follow their arm's law, or none. In between lies what a server
sees: mostly lawful, now and then a stalled machine or a prompt made to mislead. Of the learners for
that case (Lykouris, Mirrokni, Paes Leme 2018) this one needs to know neither how much is corrupted
nor for how long it will run, and its regret is ``O(sum log T / gap + sqrt(C sum log T / gap))`` for
a total corruption ``C``, yet ``O(sqrt(K T))`` whatever happens.

In round ``t`` an arm is drawn from the distribution that follows the regularised leader ::

    p_i = 4 / (eta_t * (Lhat_i - x))^2,    eta_t = 4 / sqrt(t),    x such that they sum to 1

and losses are estimated with reduced variance (``z`` is the loss of the arm drawn)::

    zhat_i = (z - B_i) / p_i * 1{i drawn} + B_i,    B_i = 1/2 where p_i >= eta_t^2, else 0

Losses, priors and arms that come and go are as in ``policy_service.losses``; ``rate`` is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policy_service.abilities import RoundContext
from policy_service.api import Arm, ArmPrior, Choice, Decision
from policy_service.losses import LossState, known_arms, loss_of, probabilities
from policy_service.statistics import ArmValues, check_number, draw

_PRECISION = 1e-9
_MOST_STEPS = 60


@dataclass(frozen=True, slots=True)
class TsallisInf:
    """The learner.

    Attributes:
        rate: Factor on the learning rate; 1 is the source's.
    """

    rate: float = 1.0

    name: ClassVar[str] = "robust"

    def __post_init__(self) -> None:
        check_number(self.name, "rate", self.rate, above=0, at_most=1000)

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> LossState:
        """Return the state of a new prompt, as after the rounds that the priors stand for."""
        return LossState.seeded(arms, priors, sum(prior.pulls for prior in priors.values()))

    def select(self, state: LossState, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Draw an arm; the estimates are the probabilities of all arms."""
        chances = leader(state.of(allowed), self._eta(state))
        arm, propensity = draw(allowed, chances, rng)
        return arm, "drawn by past losses", propensity, ArmValues(allowed, chances)

    def update(self, state: LossState, arm: Arm, reward: float) -> LossState:
        """Return the state after a round in which all arms were allowed."""
        context = known_arms(state, arm)
        chances = leader(state.of(context.allowed), self._eta(state))
        return self._charged(state, context, arm, chances, reward)

    def update_from(
        self, state: LossState, context: RoundContext, decision: Decision, reward: float
    ) -> LossState:
        """Return the state after a round."""
        chances = probabilities(decision, context)
        return self._charged(state, context, decision.arm, chances, reward)

    def _charged(
        self,
        state: LossState,
        context: RoundContext,
        chosen: Arm,
        chances: Sequence[float],
        reward: float,
    ) -> LossState:
        loss = loss_of(reward, state.length)
        certain = self._eta(state) ** 2
        charges = {
            arm: 0.5 if chance >= certain else 0.0
            for arm, chance in zip(context.allowed, chances, strict=True)
        }
        drawn = context.allowed.index(chosen)
        charges[chosen] += (loss - charges[chosen]) / chances[drawn]
        return state.charged(charges, context, loss)

    def _eta(self, state: LossState) -> float:
        return self.rate * 4 / math.sqrt(state.rounds + 1)


def leader(losses: Sequence[float], eta: float) -> list[float]:
    """Return the distribution of Tsallis-INF, by Newton's method from the left.

    Args:
        losses: Accumulated losses, of which the least is 0.
        eta: Learning rate.

    >>> [round(p, 3) for p in leader([0.0, 0.0, 8.0], eta=1.0)]
    [0.483, 0.483, 0.034]
    """
    x = -2 / eta
    for _ in range(_MOST_STEPS):
        roots = [2 / (eta * (loss - x)) for loss in losses]
        excess = sum([root * root for root in roots]) - 1
        if excess < _PRECISION:
            break
        x -= excess / (eta * sum([root**3 for root in roots]))
    weights = [root * root for root in roots]
    total = sum(weights)
    return [weight / total for weight in weights]


LEARNER = TsallisInf
