"""What a learner may be able to do beyond the contract, and how it is then called.

Every learner has ``select`` and ``update``. One that can use more defines one or more of the
methods below, and is then called by them instead; whoever plays rounds calls ``choose``, ``teach``
and ``kept`` and need not know which learner has what. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from policy_service.api import (
    Arm,
    Choice,
    Decision,
    Learner,
    Outcome,
    RequestFeatures,
    RewardKind,
    StateT,
)
from policy_service.full_information import known_rewards
from policy_service.reward import reward
from policy_service.step_times import StepTimes


@dataclass(frozen=True, slots=True)
class RoundContext:
    """What is known when a round's arm is chosen.

    Attributes:
        allowed: The arms to choose from.
        features: What is known of the request.
        batch_size: Sequences that decode in the step, this one included.
        step_times: How long the Verifier's steps take; None if nobody said.
    """

    allowed: tuple[Arm, ...]
    features: RequestFeatures = field(default_factory=RequestFeatures)
    batch_size: int = 1
    step_times: StepTimes | None = None


class ContextualLearner(Learner[StateT], Protocol[StateT]):
    """A learner that looks at more than its state; ``select`` is for where no more is known."""

    def select_in(self, state: StateT, context: RoundContext, rng: np.random.Generator) -> Choice:
        """Choose one of ``context.allowed``, as ``select`` does."""


class InformedLearner(Learner[StateT], Protocol[StateT]):
    """A learner that must know how an arm was chosen; ``update`` is for where all were allowed."""

    def update_from(
        self, state: StateT, context: RoundContext, decision: Decision, reward: float
    ) -> StateT:
        """Return the state after ``decision``, made in ``context``, earned ``reward``."""


class FullInformationLearner(Learner[StateT], Protocol[StateT]):
    """A learner that also learns from arms it did not choose; ``update`` tells it of one only."""

    def update_full(
        self,
        state: StateT,
        context: RoundContext,
        decision: Decision,
        rewards: Mapping[Arm, float],
    ) -> StateT:
        """Return the state after what a round would have earned is known, however late.

        Args:
            state: State of the prompt, which may be that after later rounds.
            context: What was known when the arm was chosen.
            decision: What was chosen.
            rewards: What each arm would have earned, as far as it is known. That the chosen arm's
                is, and those of the arms that it ``full_information.reveals``.
        """


class TrimmingLearner(Learner[StateT], Protocol[StateT]):
    """A learner that cuts the draft of the arm it chose after seeing how good it is."""

    def trim(self, arm: Arm, draft_length: int, draft_score: float) -> int:
        """Return how many of the draft's first nodes to verify, in ``[0, draft_length]``."""


def choose(
    learner: Learner[Any], state: Any, context: RoundContext, rng: np.random.Generator
) -> Choice:
    """Let a learner choose one of ``context.allowed``."""
    select_in = getattr(learner, "select_in", None)
    if select_in is None:
        return learner.select(state, context.allowed, rng)
    choice: Choice = select_in(state, context, rng)
    return choice


def teach(
    learner: Learner[Any],
    state: Any,
    context: RoundContext,
    decision: Decision,
    outcome: Outcome,
    kind: RewardKind,
) -> Any:
    """Return a learner's state after a round that was a pull."""
    update_full = getattr(learner, "update_full", None)
    if update_full is not None:
        rewards = known_rewards(decision.arm, outcome, kind, context.allowed)
        return update_full(state, context, decision, rewards)
    earned = reward(outcome, kind)
    update_from = getattr(learner, "update_from", None)
    if update_from is not None:
        return update_from(state, context, decision, earned)
    return learner.update(state, decision.arm, earned)


def kept(learner: Learner[Any], arm: Arm, draft_length: int, draft_score: float) -> int:
    """Return how many nodes of a draft a learner wants verified; most keep them all."""
    trim = getattr(learner, "trim", None)
    if trim is None:
        return draft_length
    return max(0, min(draft_length, int(trim(arm, draft_length, draft_score))))
