"""What learners that draw by accumulated losses share: the state, and who is charged how much.

The loss of a reward ``Y`` is ``(L + 1 - Y) / L`` (BanditSpec, arXiv 2505.15141, Algorithm 5): 0 for
a draft of ``L`` tokens accepted whole, 1 for a plain token. A time reward may lie below 1, its loss
then is a little above 1; it is not cut, or what is worse than plain decoding would look like it.

Three cases the sources do not have:

* A **prior** of ``n`` pulls at mean ``m`` is ``n`` observed losses of ``(L + 1 - m) / L``. An arm
  without one starts where the best of the others does.
* An **arm that appears later** has, until it is pulled, the least loss that any arm has.
* An **arm that was not allowed** in a round is charged what the round lost, as a sleeping expert is
  (Freund, Schapire, Singer, Warmuth 1997): being away makes it neither better nor worse.

This module knows no learner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from policy_service.abilities import RoundContext
from policy_service.api import Arm, ArmPrior, Decision
from policy_service.statistics import ArmValues


@dataclass(frozen=True, slots=True)
class LossState:
    """Accumulated losses of one prompt's arms.

    Attributes:
        length: The paper's ``L``, at least 1.
        rounds: Rounds so far, those that the priors stand for included.
        losses: Sums of estimated losses by arm.
    """

    length: float
    rounds: float
    losses: Mapping[Arm, float]

    @classmethod
    def seeded(
        cls,
        arms: Sequence[Arm],
        priors: Mapping[Arm, ArmPrior],
        rounds: float,
        length: float | None = None,
    ) -> Self:
        """Return the state of a new prompt.

        Args:
            arms: The arms there are.
            priors: What the pool knows of them.
            rounds: How many rounds the priors stand for.
            length: ``L``; by default the largest speculation length.
        """
        largest = length or max(1, max((arm.gamma for arm in arms), default=1))
        losses = {
            arm: rounds * loss_of(prior.mean, largest)
            for arm, prior in priors.items()
            if prior.pulls > 0
        }
        least = min(losses.values(), default=0.0)
        return cls(largest, rounds, {arm: losses.get(arm, least) for arm in arms})

    def of(self, arms: Sequence[Arm]) -> list[float]:
        """Return what these arms have lost, less the least of them; in their order."""
        known = [self.losses.get(arm) for arm in arms]
        newcomers = min(self.losses.values(), default=0.0)
        losses = [newcomers if loss is None else loss for loss in known]
        least = min(losses)
        return [loss - least for loss in losses]

    def charged(
        self, charges: Mapping[Arm, float], context: RoundContext, loss: float, rounds: float = 1.0
    ) -> Self:
        """Return the state after a round.

        Args:
            charges: Estimated losses by arm; arms left out lost nothing.
            context: What the round was chosen in.
            loss: What the round really lost; charged to arms that were not allowed.
            rounds: What the round adds to the number of rounds.
        """
        losses = dict(self.losses)
        newcomers = min(losses.values(), default=0.0)
        for arm in losses.keys() - set(context.allowed):
            losses[arm] += loss
        for arm, charge in charges.items():
            losses[arm] = losses.get(arm, newcomers) + charge
        return type(self)(self.length, self.rounds + rounds, losses)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        losses = {str(arm): loss for arm, loss in self.losses.items()}
        return {"length": self.length, "rounds": self.rounds, "losses": losses}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gave."""
        losses = {Arm.parse(arm): loss for arm, loss in values["losses"].items()}
        return cls(values["length"], values["rounds"], losses)


def loss_of(reward: float, length: float) -> float:
    """Return the loss of a reward: 1 for plain decoding, 0 for the most there is.

    >>> loss_of(1, length=8), loss_of(9, length=8)
    (1.0, 0.0)
    """
    return max(0.0, (length + 1 - reward) / length)


def known_arms(state: LossState, arm: Arm) -> RoundContext:
    """Return the context of a round in which every arm was allowed."""
    return RoundContext((*state.losses, arm) if arm not in state.losses else tuple(state.losses))


def exponential_weights(losses: Sequence[float], rate: float) -> list[float]:
    """Return the distribution proportional to ``exp(-rate * loss)``.

    Args:
        losses: One an arm, the least of them 0.
        rate: Learning rate.

    >>> exponential_weights([0.0, 0.0], 1.0)
    [0.5, 0.5]
    """
    weights = [math.exp(-rate * loss) for loss in losses]
    total = sum(weights)
    return [weight / total for weight in weights]


def probabilities(decision: Decision, context: RoundContext) -> Sequence[float]:
    """Return the probabilities of ``context.allowed`` that a decision was drawn with.

    They are the decision's estimates; where there was nothing to choose, there is only one.
    """
    if len(context.allowed) == 1:
        return (1.0,)
    if isinstance(decision.estimates, ArmValues):
        return decision.estimates.of(context.allowed)
    return [decision.estimates[str(arm)] for arm in context.allowed]
