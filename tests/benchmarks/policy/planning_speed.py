"""How long planning and learning take for a step of 64 sequences with 16 arms each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from cluster.traces.planning import PlannerPlayer
from cluster.traces.replay import Replay
from policy_service.api import AskItem, Decision, Outcome, TrimItem
from policy_service.config import PolicyConfig
from policy_service.planner import Planner
from tests.benchmarks.policy.stage import Stage

BATCH = 64
NUM_ARMS = 16
_LENGTHS = (1, 2, 4, 8, 16, 3, 6, 12, 5, 7, 10, 14, 9, 11, 13)
_WARM_UP_STEPS = 20


class TimedPlanner(Planner):
    """A planner that notes how long its steps take."""

    def __init__(
        self, config: PolicyConfig, drafter_versions: Mapping[str, str], rng: np.random.Generator
    ) -> None:
        super().__init__(config, drafter_versions, rng)
        self.plan_ms: list[float] = []
        self.observe_ms: list[float] = []

    def ask(self, items: Sequence[AskItem], prefill_rows: int = 0) -> list[Decision]:
        """Plan, timed."""
        started = time.perf_counter()
        decisions = super().ask(items, prefill_rows)
        self.plan_ms.append((time.perf_counter() - started) * 1e3)
        return decisions

    def trim(self, items: Sequence[TrimItem]) -> list[int]:
        """Cut, its time added to that of planning."""
        started = time.perf_counter()
        kept = super().trim(items)
        self.plan_ms[-1] += (time.perf_counter() - started) * 1e3
        return kept

    def observe(
        self,
        rounds: Sequence[tuple[str, Decision, Outcome]],
        accepted_nodes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        """Learn, timed."""
        started = time.perf_counter()
        super().observe(rounds, accepted_nodes)
        self.observe_ms.append((time.perf_counter() - started) * 1e3)


def planning_figures(stage: Stage) -> dict[str, float]:
    """Return medians over the steps of a replay, the first ones left out."""
    count = (NUM_ARMS - 1) // len(stage.tables)
    gammas = sorted(length for length in _LENGTHS if length <= stage.trace.max_size)[:count]
    config = PolicyConfig(learner="goodput", gammas=tuple(gammas))
    player = PlannerPlayer(
        stage.trace, stage.tables, config, pool=stage.new_pool(), planner_class=TimedPlanner
    )
    Replay(stage.trace, stage.tables, player, BATCH).run(stage.queue(0), BATCH)
    planner = player.planner
    assert isinstance(planner, TimedPlanner)
    return {
        "plan_64_ms": statistics.median(planner.plan_ms[_WARM_UP_STEPS:]),
        "observe_64_ms": statistics.median(planner.observe_ms[_WARM_UP_STEPS:]),
    }
