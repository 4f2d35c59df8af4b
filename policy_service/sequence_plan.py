"""One sequence's rounds: which arms it may take, what its learner chooses, what it learns.

Belongs to the planner, which keeps one of these for every open sequence. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policy_service.api import (
    NONE,
    Arm,
    Decision,
    Learner,
    Outcome,
    RewardKind,
    SpeculationOptions,
)
from policy_service.options import arms_of
from policy_service.reward import FAULTS, is_pull, reward
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
) -> list[Arm]:
    """Return the arms that a request leaves open, of the drafters that there are.

    A pinned drafter leaves plain decoding open, a pinned gamma does not.
    """
    if is_plain(options):
        return [NONE]
    names = [name for name in drafters if options.drafter in (None, name)]
    if options.gamma is not None:
        return [Arm(name, options.gamma) for name in names]
    return list(arms_of(names, gammas))


@dataclass(slots=True)
class SequencePlan:
    """State of one open sequence.

    Attributes:
        context: Where its rounds are counted.
        options: What its request says.
        learner: Chooses its arms.
        state: The learner's state.
        snapshot_version: Version of the counts its priors came from.
        round_index: Rounds observed so far.
        drafter_version: Version of the drafter chosen last.
        suspensions: Drafters it does without for a while.
    """

    context: str
    options: SpeculationOptions
    learner: Learner[Any]
    state: Any
    snapshot_version: int
    round_index: int = 0
    drafter_version: str = ""
    suspensions: Suspensions = field(default_factory=Suspensions)

    def decide(
        self,
        room: int,
        drafters: Mapping[str, str],
        gammas: tuple[int, ...],
        rng: np.random.Generator,
    ) -> Decision:
        """Choose the arm of the next round.

        Args:
            room: Most draft tokens that make sense.
            drafters: The drafters that there are now, and the version of each.
            gammas: Speculation lengths that are arms.
            rng: Draws of the learner.
        """
        decision = self._without_choice(room, drafters) or self._chosen(drafters, gammas, rng)
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

    def _chosen(
        self, drafters: Mapping[str, str], gammas: tuple[int, ...], rng: np.random.Generator
    ) -> Decision:
        """Let the learner choose among the arms whose drafters are not suspended."""
        allowed = [
            arm
            for arm in open_arms(self.options, drafters, gammas)
            if not self.suspensions.blocks(arm.drafter, self.round_index)
        ]
        if not allowed:
            return self._plain("no drafter")
        arm, reason, propensity, estimates = self.learner.select(self.state, allowed, rng)
        return Decision(
            arm, self.learner.name, reason, propensity, self.snapshot_version, estimates
        )

    def _plain(self, reason: str) -> Decision:
        return Decision(NONE, self.learner.name, reason, 1.0, self.snapshot_version)

    def learn(self, arm: Arm, outcome: Outcome, kind: RewardKind) -> None:
        """Update learner and suspensions after a round."""
        if is_pull(outcome):
            self.state = self.learner.update(self.state, arm, reward(outcome, kind))
            self.suspensions = self.suspensions.after_answer(arm.drafter)
        elif outcome.draft_status in FAULTS:
            self.suspensions = self.suspensions.after_fault(arm.drafter, self.round_index)
        self.round_index += 1
