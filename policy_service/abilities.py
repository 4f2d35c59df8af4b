"""What a learner may be able to do beyond the contract, and how it is then called.

Every learner has ``select`` and ``update``. One that can use more defines one or more of the
methods below, and is then called by them instead; whoever plays rounds calls ``choose``, ``teach``
and ``kept`` and need not know which learner has what. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from policy_service.api import (
    Arm,
    ArmCounts,
    CellKey,
    Choice,
    Decision,
    Learner,
    Outcome,
    RequestFeatures,
    RewardKind,
    Snapshot,
    StateT,
    TrimItem,
)
from policy_service.config import PolicyConfig
from policy_service.full_information import known_rewards
from policy_service.reward import reward
from policy_service.step_times import StepLoad, StepTimes


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


class OutcomeLearner(Learner[StateT], Protocol[StateT]):
    """A learner that learns from all that a round showed, not from a reward."""

    def update_outcome(
        self, state: StateT, context: RoundContext, decision: Decision, outcome: Outcome
    ) -> StateT:
        """Return the state after a round of ``decision``, made in ``context``."""


class TrimmingLearner(Learner[StateT], Protocol[StateT]):
    """A learner that cuts the draft of the arm it chose after seeing how good it is."""

    def trim(self, arm: Arm, draft_length: int, draft_score: float) -> int:
        """Return how many of the draft's first nodes to verify, in ``[0, draft_length]``."""


SeatRound = tuple[int, Decision, Outcome, Sequence[int]]
"""Seat, what was chosen, what came of it, and of a draft that was a tree the accepted nodes."""


class BatchPlanner(Protocol):
    """What one Verifier's learner keeps to plan a step's sequences together.

    Each open sequence has a seat, a number. ``set_snapshot`` and ``take_deltas`` may be called from
    any thread; all else belongs to the engine's.
    """

    def open(self, chain: Sequence[str]) -> int:
        """Return the seat of a new sequence of these contexts, the most specific first."""

    def close(self, seat: int) -> None:
        """Give a sequence's seat back."""

    def plans(self, arms: Sequence[Arm]) -> bool:
        """Whether a sequence with these arms can be planned together with others."""

    def ask(
        self,
        seats: Sequence[int],
        rooms: Sequence[int],
        allowed: Sequence[tuple[Arm, ...]],
        load: StepLoad,
        rng: np.random.Generator,
    ) -> list[Choice]:
        """Choose an arm for every sequence of a step.

        Args:
            seats: The sequences.
            rooms: Most tokens that each can draft, at least 1.
            allowed: The arms of each; plain decoding is always among them.
            load: What else the step does.
            rng: For draws.
        """

    def trim(
        self,
        seats: Sequence[int],
        items: Sequence[TrimItem],
        load: StepLoad,
        rng: np.random.Generator,
    ) -> list[int]:
        """Return how many nodes of each draft to verify, in ``[0, draft_length]``."""

    def observe(self, rounds: Sequence[SeatRound], load: StepLoad) -> None:
        """Learn from the rounds of a step."""

    def set_drafters(self, versions: Mapping[str, str]) -> None:
        """Say which drafters there are, and the version of each."""

    def set_snapshot(self, snapshot: Snapshot, weight: float, *, is_new: bool) -> None:
        """Take over the pool's counts; ``is_new``: of another snapshot than before."""

    def take_deltas(self) -> dict[CellKey, ArmCounts]:
        """Return what was counted since the last call, beyond the counts of arms."""


class BatchLearner(Learner[StateT], Protocol[StateT]):
    """A learner that plans a step's sequences together; alone it does without the others."""

    def batch_planner(self, config: PolicyConfig) -> BatchPlanner:
        """Return what a Verifier that uses this learner keeps."""


def batch_planner(learner: Learner[Any], config: PolicyConfig) -> BatchPlanner | None:
    """Return what a Verifier keeps of a learner; None of one that plans sequences one by one."""
    make = getattr(learner, "batch_planner", None)
    planner: BatchPlanner | None = make(config) if make is not None else None
    return planner


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
    update_outcome = getattr(learner, "update_outcome", None)
    if update_outcome is not None:
        return update_outcome(state, context, decision, outcome)
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
