"""All policies on the same requests: tuned on one half of the prompts, measured on the other.

Both halves are measured, each with what the other said is best, so every prompt counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.traces.replay import Played
from policy_service.api import Arm
from tests.benchmarks.policy.bootstrap import Ratio, paired_ratio
from tests.benchmarks.policy.grids import (
    FACTORS,
    Step,
    bandit_steps,
    batch_table,
    fixed_arms,
    match_length_steps,
)
from tests.benchmarks.policy.stage import Policy, Stage, rate

OURS = "goodput"
UNPOOLED = "goodput_unpooled"
RIVALS = (
    "none",
    "best_fixed",
    "ucbspec",
    "exp3spec",
    "hedge",
    "match_length",
    "batch_table",
    "hindsight",
    "clairvoyant",
)


@dataclass
class Results:
    """What a contest gave at one batch size.

    Attributes:
        played: By policy, the replays of both halves; the same requests in the same order.
        chosen: By policy, what tuning chose, for each half.
    """

    played: dict[str, list[Played]] = field(default_factory=lambda: defaultdict(list))
    chosen: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def over(self, rival: str) -> Ratio:
        """Return ours over a rival in tokens a second."""
        prompts = [one.request.id for one in self.played[OURS]]
        times = [np.array([one.ms for one in self.played[name]]) for name in (rival, OURS)]
        return paired_ratio(prompts, times[0], times[1])

    def early_gain(self) -> Ratio:
        """Return what pooled priors gain in the beginnings of replies, in tokens a second."""
        with_pool, without = self.played[OURS], self.played[UNPOOLED]
        prompts = [one.request.id for one in with_pool]
        tokens = sum(one.early_tokens for one in with_pool)
        tokens_without = sum(one.early_tokens for one in without)
        # Rounds do not end at the same token; what is compared is time for each token.
        scale = tokens / tokens_without
        return paired_ratio(
            prompts,
            scale * np.array([one.early_ms for one in without]),
            np.array([one.early_ms for one in with_pool]),
        )


@dataclass
class Contest:
    """Lets all policies play.

    Attributes:
        stage: Where.
        batch_sizes: At each of these.
        num_requests: Fewest requests measured of a half.
        say: Told what is being done.
    """

    stage: Stage
    batch_sizes: tuple[int, ...]
    num_requests: int
    say: Callable[[str], None]
    _rates: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def run(self) -> dict[int, Results]:
        """Return the results by batch size."""
        results = {size: Results() for size in self.batch_sizes}
        for half in (0, 1):
            rates = {size: self._fixed_rates(half, size) for size in self.batch_sizes}
            table = batch_table(rates, self.stage.arms)
            for size in self.batch_sizes:
                self.say(f"half {half + 1} of 2, batch {size}")
                arms = rates[size]
                best = max(arms, key=lambda arm: arms[arm])
                fixed = Policy("fixed", {"arm": str(best)})
                entrants = {"none": Policy("none"), "best_fixed": fixed, "batch_table": table}
                self._measure(entrants | self._tuned(half, size), half, size, results[size])
        return results

    def _fixed_rates(self, half: int, size: int) -> dict[Arm, float]:
        return {
            Arm.parse(policy.params["arm"]): self._rate(policy, half, size)
            for policy in fixed_arms(self.stage.arms)
        }

    def _tuned(self, half: int, size: int) -> dict[str, Policy]:
        """Return the best settings of every learner and rule on a half; ours has its defaults."""
        stage = self.stage
        steps = {name: bandit_steps(name, stage.gammas) for name in FACTORS}
        steps["match_length"] = match_length_steps(list(stage.tables))
        tuned = {name: self._best(name, some, half, size) for name, some in steps.items()}
        return tuned | {OURS: Policy("goodput", is_pooled=True), UNPOOLED: Policy("goodput")}

    def _best(self, name: str, steps: Sequence[Step], half: int, size: int) -> Policy:
        """Return the best policy that a grid comes to."""
        best = Policy(name)
        for step in steps:
            best = max(step(best), key=lambda policy: self._rate(policy, half, size))
        return best

    def _rate(self, policy: Policy, half: int, size: int) -> float:
        key = (str(policy), half, size)
        if key not in self._rates:
            count = max(self.num_requests, size) // 2
            self._rates[key] = rate(self.stage.play(policy, half, size, count))
        return self._rates[key]

    def _measure(
        self, entrants: dict[str, Policy], tuned_on: int, size: int, results: Results
    ) -> None:
        """Play the other half, pools filled by the half that policies were tuned on."""
        half, count = 1 - tuned_on, max(self.num_requests, size)
        for name, policy in entrants.items():
            pool = None
            if policy.is_pooled:
                pool = self.stage.new_pool(self.stage.config(policy))
                self.stage.play(policy, tuned_on, size, count, pool)
            results.played[name] += self.stage.play(policy, half, size, count, pool)
            results.chosen[name].append(str(policy))
        results.played["hindsight"] += self.stage.play_hindsight(half, size, count)
        results.played["clairvoyant"] += self.stage.play_clairvoyant(half, size, count)
