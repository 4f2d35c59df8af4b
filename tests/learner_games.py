"""Prompts to play learners on, round by round, as the planner does.

A drafter's draft is accepted token by token, each with the drafter's acceptance rate, so a longer
draft earns at least what its prefix does; in time it may earn less, since every token costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policy_service.abilities import RoundContext, choose, teach
from policy_service.api import (
    NONE,
    Arm,
    ArmPrior,
    Decision,
    Learner,
    Outcome,
    RequestFeatures,
    RewardKind,
)
from policy_service.reward import reward

PLAIN_MS = 10.0


@dataclass(frozen=True)
class Game:
    """A prompt: its arms, how often each drafter is right, and what a drafted token costs."""

    arms: tuple[Arm, ...]
    acceptance: Mapping[str, float]
    kind: RewardKind = "tokens"
    token_ms: float = 1.0

    def outcome(self, arm: Arm, rng: np.random.Generator) -> Outcome:
        misses = rng.random(arm.gamma) >= self.acceptance.get(arm.drafter, 0.0)
        accepted = int(misses.argmax()) if misses.any() else arm.gamma
        return outcome_of(arm, accepted, self.token_ms)

    def mean(self, arm: Arm) -> float:
        rate = self.acceptance.get(arm.drafter, 0.0)
        tokens = 1 + sum(rate**depth for depth in range(1, arm.gamma + 1))
        if self.kind == "tokens":
            return tokens
        return tokens * PLAIN_MS / (PLAIN_MS + self.token_ms * arm.gamma)

    @property
    def best(self) -> Arm:
        return max(self.arms, key=self.mean)

    def priors(self, pulls: float) -> dict[Arm, ArmPrior]:
        return {arm: ArmPrior(pulls, self.mean(arm)) for arm in self.arms}


def outcome_of(arm: Arm, accepted: int, token_ms: float = 1.0) -> Outcome:
    return Outcome(
        num_drafted=arm.gamma,
        num_verified=arm.gamma,
        num_accepted=accepted,
        num_emitted=accepted + 1,
        step_ms=PLAIN_MS,
        draft_wait_ms=0.0,
        batch_size=1,
        draft_status="none" if arm == NONE else "ok",
        plain_ms=PLAIN_MS,
        alike_ms=PLAIN_MS + token_ms * arm.gamma,
    )


@dataclass
class Player:
    """One prompt's learner, playing."""

    learner: Learner[Any]
    state: Any
    rng: np.random.Generator
    features: RequestFeatures = field(default_factory=RequestFeatures)
    history: list[Decision] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        learner: Learner[Any],
        arms: Sequence[Arm],
        seed: int,
        priors: Mapping[Arm, ArmPrior] | None = None,
    ) -> Player:
        state = learner.initial_state(tuple(arms), priors or {})
        return cls(learner, state, np.random.default_rng(seed))

    def decide(self, context: RoundContext) -> Decision:
        arm, reason, propensity, estimates = choose(self.learner, self.state, context, self.rng)
        return Decision(arm, self.learner.name, reason, propensity, 0, estimates)

    def play(self, game: Game, rounds: int = 1) -> None:
        context = RoundContext(game.arms, self.features)
        for _ in range(rounds):
            decision = self.decide(context)
            outcome = game.outcome(decision.arm, self.rng)
            self.learn(context, decision, outcome, game.kind)

    def learn(
        self, context: RoundContext, decision: Decision, outcome: Outcome, kind: RewardKind
    ) -> float:
        self.state = teach(self.learner, self.state, context, decision, outcome, kind)
        self.history.append(decision)
        return reward(outcome, kind)

    @property
    def pulls(self) -> Counter[Arm]:
        return Counter(decision.arm for decision in self.history)
