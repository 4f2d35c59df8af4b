"""Hedge on every reward that a round reveals, not only on that of the arm chosen.

HedgeSpec ("Not-a-Bandit", arXiv 2510.20064) plays Hedge on drafters of which each round tells all
rewards. Here a round tells the rewards of the arms that its draft ``reveals``
(``policy_service.full_information``): one verified draft teaches all its prefixes. That is Hedge
with side observations and implicit exploration (Exp3-IX: Kocak, Neu, Valko, Munos 2014)::

    p_i     proportional to exp(-rate * eta_t * sum of the arm's estimated losses so far)
    o_i     = sum of p_j over all arms j that reveal i: the probability to see the loss of i
    zhat_i  = (z_i - 1) / (o_i + eta_t) where i was revealed, else 0
    eta_t   = sqrt(ln K / (K + sum over s < t of Q_s)),    Q_s = sum of p_i / (o_i + eta_s)

Where all arms are revealed every round, ``o_i = 1`` and ``Q_s`` is about 1: that is Hedge, with
regret ``O(sqrt(T ln K))``. Where only the chosen one is, it is EXP3's ``O(sqrt(T K ln K))``.

Two things are ours. Losses are measured from that of plain decoding, which is 1 and known in every
round: in the source ``zhat_i = z_i / (o_i + eta_t)``, whose noise drowns differences between arms
that are as small as those of speculation lengths, and favours arms that are seldom seen. And
``rate``: the source's 1 is slow for replies of some hundred tokens.

A round's feedback may come late and in any order, for it is weighed with the probabilities that its
decision was drawn with; a delay of ``d`` rounds costs ``O(d)`` more (Joulani, Gyorgy, Szepesvari
2013). Losses, priors and arms that come and go are as in ``policy_service.losses``; the priors
stand for as many rounds as the best known arm has pulls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from policy_service.abilities import RoundContext
from policy_service.api import Arm, ArmPrior, Choice, Decision
from policy_service.full_information import reveals
from policy_service.losses import (
    LossState,
    exponential_weights,
    known_arms,
    loss_of,
    probabilities,
)
from policy_service.statistics import ArmValues, check_number, draw


@dataclass(frozen=True, slots=True)
class Hedge:
    """The learner.

    The rounds of its state are the sum of ``Q_s``.

    Attributes:
        rate: Factor on the learning rate; 1 is the source's.
    """

    rate: float = 4.0

    name: ClassVar[str] = "hedge"

    def __post_init__(self) -> None:
        check_number(self.name, "rate", self.rate, above=0, at_most=1000)

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> LossState:
        """Return the state of a new prompt, as after the rounds that the priors stand for."""
        rounds = max((prior.pulls for prior in priors.values()), default=0.0)
        return LossState.seeded(arms, priors, rounds)

    def select(self, state: LossState, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Draw an arm; the estimates are the probabilities of all arms."""
        chances = self._probabilities(state, allowed)
        arm, propensity = draw(allowed, chances, rng)
        return arm, "drawn by past losses", propensity, ArmValues(allowed, chances)

    def update(self, state: LossState, arm: Arm, reward: float) -> LossState:
        """Return the state after a round that revealed nothing but the reward of ``arm``."""
        context = known_arms(state, arm)
        chances = self._probabilities(state, context.allowed)
        return self._charged(state, context, chances, chances, arm, {arm: reward})

    def update_full(
        self,
        state: LossState,
        context: RoundContext,
        decision: Decision,
        rewards: Mapping[Arm, float],
    ) -> LossState:
        """Return the state after a round with the rewards of all arms that it revealed."""
        chances = probabilities(decision, context)
        seen = observation_probabilities(context.allowed, chances)
        return self._charged(state, context, chances, seen, decision.arm, rewards)

    def _charged(
        self,
        state: LossState,
        context: RoundContext,
        chances: Sequence[float],
        seen: Sequence[float],
        chosen: Arm,
        rewards: Mapping[Arm, float],
    ) -> LossState:
        """Return the state after a round; ``seen`` has the probability to see each arm's loss."""
        eta = self._eta(state, len(chances))
        charges = {
            arm: (loss_of(rewards[arm], state.length) - 1) / (visible + eta)
            for arm, visible in zip(context.allowed, seen, strict=True)
            if arm in rewards
        }
        pairs = zip(chances, seen, strict=True)
        spread = sum([chance / (visible + eta) for chance, visible in pairs])
        lost = loss_of(rewards[chosen], state.length) - 1
        return state.charged(charges, context, lost, spread)

    def _probabilities(self, state: LossState, arms: Sequence[Arm]) -> list[float]:
        """Return the distribution of the next round."""
        return exponential_weights(state.of(arms), self.rate * self._eta(state, len(arms)))

    def _eta(self, state: LossState, num_arms: int) -> float:
        return math.sqrt(math.log(num_arms) / (num_arms + state.rounds))


def observation_probabilities(arms: tuple[Arm, ...], chances: Sequence[float]) -> list[float]:
    """Return with what probability a round reveals each arm.

    >>> arms = Arm("suffix", 2), Arm("suffix", 4), Arm("suffix", 8)
    >>> observation_probabilities(arms, [0.25, 0.25, 0.5])
    [1.0, 0.75, 0.5]
    """
    return [min(1.0, sum([chances[index] for index in indices])) for indices in _revealing(arms)]


@lru_cache(maxsize=256)
def _revealing(arms: tuple[Arm, ...]) -> tuple[tuple[int, ...], ...]:
    """Return for each arm which of the arms reveal it."""
    return tuple(
        tuple(index for index, chosen in enumerate(arms) if reveals(chosen, arm)) for arm in arms
    )


LEARNER = Hedge
