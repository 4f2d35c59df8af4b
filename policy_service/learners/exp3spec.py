"""EXP3Spec, Algorithm 9 of BanditSpec (arXiv 2505.15141): for rewards that follow no law.

Anytime EXP3 on estimated losses, without uniform mixing. In round ``t`` an arm is drawn from ::

    p_i proportional to exp(-eta_t * sum of the arm's estimated losses so far)
    eta_t = sqrt(ln K / (t * K))

with ``K`` the number of arms, and the loss of the arm drawn is estimated without bias::

    (L + 1 - Y) / (L * p_i)            and 0 for all others

The paper's reward ``Y`` is the number of tokens of the round. Stopping-time regret (Theorem 5.3) is
at most ``2 L min(sqrt(len K ln K), 2 L K ln K + sqrt(ST* K ln K))`` against any sequence of rewards
that was fixed beforehand. Ours are ``rate`` and what ``policy_service.losses`` says of priors and
of arms that come and go: the priors stand for as many rounds as they have pulls in all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policy_service.abilities import RoundContext
from policy_service.api import Arm, ArmPrior, Choice, Decision
from policy_service.losses import LossState, exponential_weights, known_arms, loss_of
from policy_service.statistics import ArmValues, check_number, draw


@dataclass(frozen=True, slots=True)
class Exp3Spec:
    """The learner.

    Attributes:
        L: Largest speculation length; by default the largest gamma among the arms.
        rate: Factor on the learning rate; 1 is the paper's.
    """

    L: int | None = None
    rate: float = 1.0

    name: ClassVar[str] = "exp3spec"

    def __post_init__(self) -> None:
        check_number(self.name, "rate", self.rate, above=0, at_most=1000)
        if self.L is not None:
            check_number(self.name, "L", self.L, above=0, at_most=1000)

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> LossState:
        """Return the state of a new prompt, as after the rounds that the priors stand for."""
        rounds = sum(prior.pulls for prior in priors.values())
        return LossState.seeded(arms, priors, rounds, self.L)

    def select(self, state: LossState, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Draw an arm; the estimates are the probabilities of all arms."""
        chances = self._probabilities(state, allowed)
        arm, propensity = draw(allowed, chances, rng)
        return arm, "drawn by past losses", propensity, ArmValues(allowed, chances)

    def update(self, state: LossState, arm: Arm, reward: float) -> LossState:
        """Return the state after a round in which all arms were allowed."""
        context = known_arms(state, arm)
        chances = self._probabilities(state, context.allowed)
        return self._charged(state, context, arm, chances[context.allowed.index(arm)], reward)

    def update_from(
        self, state: LossState, context: RoundContext, decision: Decision, reward: float
    ) -> LossState:
        """Return the state after a round."""
        return self._charged(state, context, decision.arm, decision.propensity, reward)

    def _charged(
        self, state: LossState, context: RoundContext, arm: Arm, propensity: float, reward: float
    ) -> LossState:
        loss = loss_of(reward, state.length)
        return state.charged({arm: loss / propensity}, context, loss)

    def _probabilities(self, state: LossState, arms: Sequence[Arm]) -> list[float]:
        """Return the distribution of the next round."""
        eta = self.rate * math.sqrt(math.log(len(arms)) / ((state.rounds + 1) * len(arms)))
        return exponential_weights(state.of(arms), eta)


LEARNER = Exp3Spec
