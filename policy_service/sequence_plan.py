"""One sequence's rounds: which arms it may take, what its learner chooses, what it learns.

Belongs to the planner, which keeps one of these for every open sequence. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from policy_service.abilities import BatchPlanner, RoundContext, choose, teach
from policy_service.api import (
    NONE,
    Arm,
    Decision,
    Learner,
    Outcome,
    RequestFeatures,
    RewardKind,
    SpeculationOptions,
)
from policy_service.options import arms_of
from policy_service.reward import FAULTS, is_pull
from policy_service.step_times import StepTimes
from policy_service.suspension import Suspensions


def is_plain(options: SpeculationOptions) -> bool:
    """Whether the request asks for plain decoding."""
    return options.mode == "off" or options.gamma == 0


def pinned_arm(options: SpeculationOptions) -> Arm | None:
    """Return the arm of a request that leaves no choice, else None."""
    if is_plain(options):
        return NONE
    if options.drafter is not None and options.gamma is not None:
        return Arm(options.drafter, options.gamma)
    return None


def open_arms(
    options: SpeculationOptions, drafters: Mapping[str, str], gammas: tuple[int, ...]
) -> tuple[Arm, ...]:
    """Return the arms that a request leaves open, of the drafters that there are.

    A pinned drafter leaves plain decoding open, a pinned gamma does not.
    """
    if is_plain(options):
        return (NONE,)
    names = tuple(name for name in drafters if options.drafter in (None, name))
    if options.gamma is not None:
        return tuple(Arm(name, options.gamma) for name in names)
    return _arms_of(names, gammas)


@lru_cache(maxsize=64)
def _arms_of(names: tuple[str, ...], gammas: tuple[int, ...]) -> tuple[Arm, ...]:
    """Return all arms, the same objects to all sequences: a step touches every one of them."""
    return arms_of(names, gammas)


@dataclass(frozen=True, slots=True)
class _KnownArms:
    """A request's open arms while the drafters are the same."""

    drafters: Mapping[str, str]
    arms: tuple[Arm, ...]


@dataclass(slots=True)
class SequencePlan:
    """State of one open sequence.

    Attributes:
        context: Where its rounds are counted.
        options: What its request says.
        learner: Chooses its arms.
        state: The learner's state.
        snapshot_version: Version of the counts its priors came from.
        features: What is known of its request.
        round_index: Rounds observed so far.
        drafter_version: Version of the drafter chosen last.
        suspensions: Drafters it does without for a while.
        round: What was known when the last round was chosen.
        batch: Plans its rounds together with others'; None if its learner does not.
        seat: Its number there.
        is_joint: Whether its last round was planned so.
    """

    context: str
    options: SpeculationOptions
    learner: Learner[Any]
    state: Any
    snapshot_version: int
    features: RequestFeatures = field(default_factory=RequestFeatures)
    round_index: int = 0
    drafter_version: str = ""
    suspensions: Suspensions = field(default_factory=Suspensions)
    round: RoundContext = field(default_factory=lambda: RoundContext((NONE,)))
    batch: BatchPlanner | None = None
    seat: int = -1
    is_joint: bool = False
    _arms: _KnownArms | None = None

    def decide(
        self,
        room: int,
        drafters: Mapping[str, str],
        gammas: tuple[int, ...],
        rng: np.random.Generator,
        batch_size: int = 1,
        step_times: StepTimes | None = None,
    ) -> Decision:
        """Choose the arm of the next round.

        Args:
            room: Most draft tokens that make sense.
            drafters: The drafters that there are now, and the version of each; another mapping
                object whenever they change.
            gammas: Speculation lengths that are arms.
            rng: Draws of the learner.
            batch_size: Sequences that decode in the step.
            step_times: How long the Verifier's steps take.
        """
        self.is_joint = False
        decision = self._without_choice(room, drafters)
        if decision is None:
            allowed = self.allowed(drafters, gammas)
            self.round = RoundContext(allowed or (NONE,), self.features, batch_size, step_times)
            decision = self._chosen(rng) if allowed else self._plain("no drafter")
        else:
            self.round = RoundContext((decision.arm,), self.features, batch_size, step_times)
        self.drafter_version = drafters.get(decision.arm.drafter, "")
        return decision

    def _without_choice(self, room: int, drafters: Mapping[str, str]) -> Decision | None:
        """Return the decision of a round in which there is nothing to choose."""
        pinned = pinned_arm(self.options)
        if pinned == NONE:
            return self._plain("off")
        if room <= 0:
            return self._plain("no room")
        if pinned is None:
            return None
        if pinned.drafter not in drafters:
            return self._plain("drafter away")
        return Decision(pinned, self.learner.name, "pinned", 1.0, self.snapshot_version)

    def _chosen(self, rng: np.random.Generator) -> Decision:
        """Let the learner choose among the arms whose drafters are not suspended."""
        arm, reason, propensity, estimates = choose(self.learner, self.state, self.round, rng)
        return Decision(
            arm, self.learner.name, reason, propensity, self.snapshot_version, estimates
        )

    def allowed(self, drafters: Mapping[str, str], gammas: tuple[int, ...]) -> tuple[Arm, ...]:
        """Return the open arms of drafters that are not suspended; computed anew on change."""
        if self._arms is None or self._arms.drafters is not drafters:
            self._arms = _KnownArms(drafters, open_arms(self.options, drafters, gammas))
        if not self.suspensions.entries:
            return self._arms.arms
        return tuple(
            arm
            for arm in self._arms.arms
            if not self.suspensions.blocks(arm.drafter, self.round_index)
        )

    def _plain(self, reason: str) -> Decision:
        return Decision(NONE, self.learner.name, reason, 1.0, self.snapshot_version)

    def learn(self, decision: Decision, outcome: Outcome, kind: RewardKind) -> None:
        """Update learner and suspensions after a round; one planned jointly is learnt jointly."""
        drafter = decision.arm.drafter
        if is_pull(outcome):
            if self.batch is None:
                self.state = teach(self.learner, self.state, self.round, decision, outcome, kind)
            if self.suspensions.entries:
                self.suspensions = self.suspensions.after_answer(drafter)
        elif outcome.draft_status in FAULTS:
            self.suspensions = self.suspensions.after_fault(drafter, self.round_index)
        self.round_index += 1
