"""A player that chooses with the planner of a live Verifier, and learns as that does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from cluster.errors import TraceError
from cluster.traces.format import Trace, TracedRequest
from cluster.traces.replay import DraftTable, Pick, Running
from policy_service.api import AskItem, Decision, Outcome, SpeculationOptions, TrimItem
from policy_service.config import PolicyConfig
from policy_service.planner import Planner

_AUTO = SpeculationOptions()


class Pooling(Protocol):
    """Takes in what a planner counts, and may give it snapshots."""

    def exchange(self, planner: Planner) -> None:
        """Take in a planner's counts now."""

    def pass_time(self, planner: Planner, ms: float) -> None:
        """Let the time of a step pass."""


class PlannerPlayer:
    """Plays with the very code that plans a Verifier's rounds.

    Args:
        trace: What is replayed.
        tables: ``DraftTable`` of each drafter that there is; others of the trace are not deployed.
        config: Learner and arms.
        seed: Of the learner's draws.
        pool: Seeds new sequences; None for none.
        options: What a request says about speculation.
        planner_class: Makes the planner.

    Attributes:
        planner: The planner.
        arms: Rounds of each arm.

    Raises:
        TraceError: If an arm drafts more than was recorded.
    """

    def __init__(
        self,
        trace: Trace,
        tables: Mapping[str, DraftTable],
        config: PolicyConfig,
        seed: int = 0,
        pool: Pooling | None = None,
        options: Callable[[TracedRequest], SpeculationOptions] = lambda request: _AUTO,
        planner_class: type[Planner] = Planner,
    ) -> None:
        if max(config.gammas, default=0) > trace.max_size:
            raise TraceError(
                f"the trace has drafts of up to {trace.max_size} tokens; "
                f"gammas {config.gammas} need more"
            )
        self._trace = trace
        self._tables = tables
        self._options = options
        self._pool = pool
        versions = {name: trace.versions[name] for name in tables}
        self.planner = planner_class(config, versions, np.random.default_rng(seed))
        self.planner.set_step_times(trace.step_times)
        self._decisions: list[Decision] = []
        self.arms: Counter[str] = Counter()
        if pool is not None:
            pool.exchange(self.planner)

    def open(self, sequence: Running) -> None:
        """Open the sequence in the planner."""
        request = sequence.request
        self.planner.open(sequence.name, request.features, self._options(request))

    def plan(self, batch: Sequence[Running]) -> list[Pick]:
        """Ask, draft, trim."""
        rooms = [self._room(sequence) for sequence in batch]
        self._decisions = self.planner.ask(
            [
                AskItem(one.name, room, one.num_cached)
                for one, room in zip(batch, rooms, strict=True)
            ]
        )
        picks, items, drafting = [], [], []
        for sequence, room, decision in zip(batch, rooms, self._decisions, strict=True):
            pick = Pick()
            if decision.arm.drafter:
                table = self._tables[decision.arm.drafter]
                pick = table.pick(decision.arm, sequence.position, min(decision.arm.gamma, room))
                items.append(
                    TrimItem(sequence.name, decision, pick.drafted, pick.score, pick.parents)
                )
                drafting.append(pick)
            picks.append(pick)
        for pick, kept in zip(drafting, self.planner.trim(items) if items else [], strict=True):
            pick.kept = min(kept, pick.drafted)
        return picks

    def learn(
        self, batch: Sequence[Running], picks: Sequence[Pick], outcomes: Sequence[Outcome]
    ) -> None:
        """Let the planner observe the step, and the pool its time."""
        names = [sequence.name for sequence in batch]
        trees = {
            name: pick.accepted
            for name, pick in zip(names, picks, strict=True)
            if pick.kept and pick.parents
        }
        self.planner.observe(list(zip(names, self._decisions, outcomes, strict=True)), trees)
        self.arms.update(str(pick.arm) for pick in picks)
        if self._pool is not None:
            self._pool.pass_time(self.planner, outcomes[0].step_ms)

    def close(self, sequence: Running) -> None:
        """Close the sequence in the planner."""
        self.planner.close(sequence.name)

    def _room(self, sequence: Running) -> int:
        """Return the most draft tokens that make sense, as the engine's scheduler says."""
        left = self._trace.max_tokens - sequence.done
        return max(0, min(left - 1, self._trace.max_size))
