"""Plays a learner on logged replies, round by round, as far as the log tells what it would meet.

In every round of the log the learner chooses. If the round tells the outcome of that choice
(``counterfactual``), with chance ``o`` of telling it, the round counts with weight ``1 / o``.
Whether the learner may also *learn* from it is drawn, with chance ``min(1, c / o)``: so what it
learns from is distributed as if it had chosen the arms itself, each of its own rounds standing
for about ``1 / c`` rounds of the log. That is the rejection sampling of Dudik, Erhan, Langford,
Li (2012, arXiv 1210.4862, DR-ns), with the choice drawn instead of summed over.

No I/O. Knows neither files nor statistics of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from policy_service.abilities import RoundContext, choose, kept, teach
from policy_service.api import Arm, ArmPrior, Decision, Learner, RewardKind
from policy_service.decision_log.records import RoundRecord
from policy_service.off_policy.counterfactual import (
    Telling,
    logged_chances,
    telling,
    would_have_been,
)
from policy_service.off_policy.reward_model import MeanModel
from policy_service.off_policy.sums import ReplySums
from policy_service.reward import is_pull
from policy_service.step_times import StepTimes

CLIPPED = 0.05
"""Share of the learner's choices that may be told with less chance than ``c``."""


class OffPolicyPlayer:
    """Plays one learner on replies.

    Args:
        learner: The learner to judge.
        kind: Reward that it is paid.
        model: What rounds are worth on average.
        step_times: How long steps take, for learners that ask.
        rng: Draws of the learner and of what it may learn from.
        acceptance: The constant ``c``, in (0, 1].
    """

    def __init__(
        self,
        learner: Learner[Any],
        kind: RewardKind,
        model: MeanModel,
        step_times: StepTimes | None,
        rng: np.random.Generator,
        acceptance: float = 1.0,
    ) -> None:
        self._learner = learner
        self._kind: RewardKind = kind
        self._model = model
        self._step_times = step_times
        self._rng = rng
        self._acceptance = acceptance
        self.chances: list[tuple[float, float]] = []
        """Chances that choices were told with, and how many choices each stands for."""

    def play(self, rounds: Sequence[RoundRecord], priors: Mapping[Arm, ArmPrior]) -> ReplySums:
        """Play a reply from its first round on, with a learner of its own."""
        sums = ReplySums()
        state = self._learner.initial_state(_arms(rounds), priors)
        for record in rounds:
            context = RoundContext(
                record.allowed, record.features, record.outcome.batch_size, self._step_times
            )
            decision = self._decide(state, context)
            tell = telling(record, logged_chances(record), decision.arm)
            self._note_chance(tell, context)
            outcome = None
            if tell.is_told:
                outcome = would_have_been(record, decision.arm, partial(kept, self._learner))
            sums.count_log(record)
            expected = self._model.predict(decision.arm, context.batch_size)
            sums.count_told(tell, outcome, expected)
            if outcome is not None and self._rng.random() * tell.chance < self._acceptance:
                sums.count_learnt(outcome)
                if is_pull(outcome):
                    state = teach(self._learner, state, context, decision, outcome, self._kind)
        return sums

    def _decide(self, state: Any, context: RoundContext) -> Decision:
        name = self._learner.name
        if len(context.allowed) == 1:
            return Decision(context.allowed[0], name, "no choice")
        arm, reason, propensity, estimates = choose(self._learner, state, context, self._rng)
        return Decision(arm, name, reason, propensity, 0, estimates)

    def _note_chance(self, tell: Telling, context: RoundContext) -> None:
        if len(context.allowed) == 1 or tell.chance <= 0:
            return
        if tell.is_known:
            self.chances.append((tell.chance, 1.0))
        elif tell.is_told:
            self.chances.append((tell.chance, 1 / tell.chance))


def acceptance_of(chances: Sequence[tuple[float, float]]) -> float:
    """Return the ``c`` below which the chances of ``CLIPPED`` of the choices lie; 1 without any.

    >>> acceptance_of([(0.5, 1.0)] * 50 + [(0.25, 1.0)] * 50)
    0.25
    """
    limit = CLIPPED * sum(count for _, count in chances)
    below = 0.0
    for chance, count in sorted(chances):
        below += count
        if below > limit:
            return min(1.0, chance)
    return 1.0


def _arms(rounds: Sequence[RoundRecord]) -> tuple[Arm, ...]:
    """Return the arms that the reply began with: those of its first choice."""
    return next((one.allowed for one in rounds if len(one.allowed) > 1), rounds[0].allowed)
