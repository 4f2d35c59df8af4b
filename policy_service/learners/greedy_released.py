"""What the released code of BanditSpec does, which is not what its paper says.

``ucb_length_spec_generate`` of ``sail-sg/BanditSpec`` (commit 4e6dd86) plays the ``K`` arms in turn
for the first ``2 K - 1`` rounds, so the last one only once, and from then on the arm with the
highest ::

    mean_i + sqrt(6 * ln(round) / pulls of all arms together)

The bonus is the same number for every arm: this is follow-the-leader, and an arm whose first rounds
were unlucky is never played again. Equals go to the first. There, the mean is of tokens per second
of a whole batch and the state starts afresh with every batch; here, it is of the configured reward,
and the state starts afresh with every prompt: pooled priors are not used.

The released code knows neither plain decoding as an arm nor arms that come and go; an arm that was
not there in the first rounds is played once when it appears.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policy_service.api import Arm, ArmPrior, Choice
from policy_service.statistics import ArmValues, SumsState


@dataclass(frozen=True, slots=True)
class GreedyReleased:
    """The learner; it has no parameters."""

    name: ClassVar[str] = "greedy_released"

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> SumsState:
        """Return the state of a new prompt, without priors."""
        return SumsState.seeded(arms, {})

    def select(self, state: SumsState, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Choose the arm whose turn it is, or else the one with the highest mean."""
        num_rounds = round(sum(item.pulls for item in state.sums.values()))
        if num_rounds < 2 * len(allowed) - 1:
            return allowed[num_rounds % len(allowed)], "forced round", 1.0, {}
        sums = state.of(allowed)
        for arm, item in zip(allowed, sums, strict=True):
            if item.pulls <= 0:
                return arm, "first pull", 1.0, {}
        bonus = math.sqrt(6.0 * math.log(num_rounds + 1) / num_rounds)
        scores = [item.mean + bonus for item in sums]
        leader = allowed[scores.index(max(scores))]
        return leader, "highest mean", 1.0, ArmValues(allowed, scores)

    def update(self, state: SumsState, arm: Arm, reward: float) -> SumsState:
        """Return the state after one more pull."""
        return state.plus(arm, reward)


LEARNER = GreedyReleased
