"""A Verifier on paper for learners that plan whole steps: prompts, drafters and times are made up.

Each drafter has its own law of scores and of acceptance by score; each prompt has an effect of its
own on the log odds. Steps take what a table of times says, and the wait for drafters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policy_service.api import (
    AskItem,
    Decision,
    Outcome,
    RequestFeatures,
    SpeculationOptions,
    TrimItem,
)
from policy_service.config import PolicyConfig
from policy_service.planner import Planner
from policy_service.step_times import StepTimes

TIMES = StepTimes(
    (1, 2, 4, 8, 16, 32, 64, 128), (20.0, 21.0, 23.0, 27.0, 36.0, 56.0, 96.0, 180.0), 0.05, 2e-4
)
"""Much like those of a small model on two cores: a forward of few rows reads the weights."""


@dataclass(frozen=True)
class FakeDrafter:
    """How a drafter does.

    ``slope`` is what an octave of the score adds to the log odds of acceptance, ``level`` the log
    odds at a score of 1; a share ``empty`` of its drafts are empty.
    """

    level: float
    slope: float = 0.0
    empty: float = 0.0
    scores: tuple[float, ...] = (1.0,)
    wait_ms: float = 0.2
    token_ms: float = 0.0
    spread: float = 0.7

    def draft(self, effect: float, rng: np.random.Generator) -> tuple[float, float]:
        """Return a draft's score and the acceptance of its tokens; a score of 0 is no draft."""
        if rng.random() < self.empty:
            return 0.0, 0.0
        score = self.scores[int(rng.integers(len(self.scores)))]
        odds = self.level + self.slope * math.log2(score) + self.spread * effect
        return score, 1 / (1 + math.exp(-odds))


LOOKUP = FakeDrafter(-1.2, 1.3, 0.4, (1.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0))
NEURAL = FakeDrafter(0.9, wait_ms=2.0, token_ms=0.15)
USELESS = FakeDrafter(-6.0, spread=0.0)


@dataclass
class Verifier:
    """Serves prompts of ``length`` tokens in a full batch."""

    drafters: Mapping[str, FakeDrafter]
    config: PolicyConfig
    batch_size: int
    seed: int = 0
    times: StepTimes = TIMES
    length: int = 120
    features: Callable[[int], RequestFeatures] = lambda index: RequestFeatures(tenant="acme")
    options: Callable[[int], SpeculationOptions] = lambda index: SpeculationOptions()
    planner: Planner = field(init=False)
    decisions: list[list[Decision]] = field(default_factory=list)
    arms: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    ms: float = 0.0
    slowdown_ms: float = 0.0
    """What a step with drafts takes besides, beyond all that the planner is told."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        versions = dict.fromkeys(self.drafters, "1")
        self.planner = Planner(self.config, versions, np.random.default_rng(self.seed + 1))
        self.planner.set_step_times(self.times)
        self._left: dict[str, int] = {}
        self._effects: dict[str, dict[str, float]] = {}
        self._count = 0

    def run(self, steps: int) -> Verifier:
        """Play steps."""
        for _ in range(steps):
            self.step()
        return self

    @property
    def rate(self) -> float:
        """Tokens a millisecond."""
        return self.tokens / self.ms

    def _fill(self) -> None:
        while len(self._left) < self.batch_size:
            name = f"s{self._count}"
            prompt = np.random.default_rng((self.seed, self._count))  # the same for every learner
            self._left[name] = self.length
            self._effects[name] = {drafter: prompt.normal() for drafter in self.drafters}
            self.planner.open(name, self.features(self._count), self.options(self._count))
            self._count += 1

    def step(self) -> None:
        """Play one step."""
        self._fill()
        names = list(self._left)
        rooms = [min(16, self._left[name] - 1) for name in names]
        decisions = self.planner.ask(
            [AskItem(name, room, 200) for name, room in zip(names, rooms, strict=True)]
        )
        self.decisions.append(decisions)
        drafts = [
            self._draft(name, room, decision)
            for name, room, decision in zip(names, rooms, decisions, strict=True)
        ]
        items = [
            TrimItem(name, decision, length, score)
            for name, decision, (length, score, _) in zip(names, decisions, drafts, strict=True)
            if decision.arm.gamma
        ]
        kept = dict(zip((one.sequence_id for one in items), self.planner.trim(items), strict=True))
        waits = self._waits(decisions)
        rows = len(names) + sum(kept.values())
        cached = 200 * len(names)
        step_ms = self.times.predict_ms(rows, len(names), cached) + max(waits.values(), default=0)
        step_ms += self.slowdown_ms if waits else 0.0
        rounds = []
        for name, decision, (length, _, acceptance) in zip(names, decisions, drafts, strict=True):
            verified = kept.get(name, 0)
            hits = self.rng.random(verified) < acceptance
            accepted = verified if hits.all() else int(np.argmin(hits))
            emitted = min(accepted + 1, self._left[name])
            status = "none" if not decision.arm.gamma else ("ok" if length else "empty")
            outcome = Outcome(
                length,
                verified,
                accepted,
                emitted,
                step_ms,
                waits.get(decision.arm.drafter, 0.0),
                len(names),
                status,
                self.times.predict_ms(len(names), len(names), cached),
                self.times.predict_ms(len(names) * (1 + verified), len(names), cached)
                + waits.get(decision.arm.drafter, 0.0),
            )
            rounds.append((name, decision, outcome))
            self.arms[str(decision.arm)] += 1
            self.tokens += emitted
        self.ms += step_ms
        self.planner.observe(rounds)
        for name, _, outcome in rounds:
            self._left[name] -= outcome.num_emitted
            if not self._left[name]:
                del self._left[name]
                self.planner.close(name)

    def _draft(self, name: str, room: int, decision: Decision) -> tuple[int, float, float]:
        if not decision.arm.gamma:
            return 0, 0.0, 0.0
        drafter = self.drafters[decision.arm.drafter]
        score, acceptance = drafter.draft(self._effects[name][decision.arm.drafter], self.rng)
        return (min(decision.arm.gamma, room) if score else 0), score, acceptance

    def _waits(self, decisions: Sequence[Decision]) -> dict[str, float]:
        waits: dict[str, float] = {}
        for decision in decisions:
            name = decision.arm.drafter
            if name:
                fake = self.drafters[name]
                waits.setdefault(name, fake.wait_ms)
                waits[name] += fake.token_ms * decision.arm.gamma
        return waits


def fixed(arm: str, **config: object) -> PolicyConfig:
    """Return the configuration of a Verifier that always plays an arm."""
    return PolicyConfig.model_validate({"learner": "fixed", "params": {"arm": arm}, **config})


def best_fixed(
    drafters: Mapping[str, FakeDrafter], batch_size: int, steps: int
) -> tuple[str, float]:
    """Return the best arm and its rate."""
    arms = ["none", *(f"{name}:{gamma}" for name in drafters for gamma in (2, 4, 8))]
    rates = {
        arm: Verifier(drafters, fixed(arm), batch_size, seed=5).run(steps).rate for arm in arms
    }
    best = max(rates, key=rates.__getitem__)
    return best, rates[best]
