"""Where policies play: a trace in two halves, and how a policy plays one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster.traces.format import Trace, TracedRequest
from cluster.traces.hindsight import Clairvoyant, Costs, best_arms
from cluster.traces.planning import PlannerPlayer
from cluster.traces.pool import ReplayedPool
from cluster.traces.replay import DraftTable, Played, Player, Replay
from policy_service.api import NONE, Arm, SpeculationOptions
from policy_service.config import PolicyConfig
from policy_service.options import arms_of


@dataclass(frozen=True)
class Policy:
    """A learner with everything that is tuned about it.

    Attributes:
        learner: Its name.
        params: Its parameters.
        gammas: Speculation lengths of its arms; None for all.
        is_pooled: Whether its prompts start from pooled counts.
    """

    learner: str
    params: Mapping[str, Any] = field(default_factory=dict)
    gammas: tuple[int, ...] | None = None
    is_pooled: bool = False

    def __str__(self) -> str:
        params = [f"{name}={value}" for name, value in self.params.items()]
        gammas = [f"gammas={self.gammas}"] if self.gammas else []
        return f"{self.learner}({', '.join(params + gammas + ['pooled'] * self.is_pooled)})"


class Stage:
    """A trace to play on.

    Args:
        trace: The trace.
        gammas: Speculation lengths that are arms.
        seed: Of the order of requests and of learners' draws.
    """

    def __init__(self, trace: Trace, gammas: tuple[int, ...], seed: int) -> None:
        self.trace = trace
        self.gammas = gammas
        self.tables = {name: DraftTable(trace, name) for name in trace.versions}
        self.arms: tuple[Arm, ...] = arms_of(list(trace.versions), gammas)
        self._seed = seed
        usable = [request for request in trace.requests if request.num_tokens >= 2]
        self.halves = (usable[0::2], usable[1::2])
        """Every other prompt, so that both halves have about the same of each workload."""

    def play(
        self,
        policy: Policy,
        half: int,
        batch_size: int,
        num_requests: int,
        pool: ReplayedPool | None = None,
    ) -> list[Played]:
        """Let a policy play requests of one half.

        Args:
            policy: The policy.
            half: Which.
            batch_size: Sequences at a time.
            num_requests: At least so many are played, each prompt equally often.
            pool: What was pooled before; None starts with nothing.
        """
        config = self.config(policy)
        if policy.is_pooled and pool is None:
            pool = self.new_pool(config)
        player = PlannerPlayer(self.trace, self.tables, config, self._seed, pool)
        return self._run(player, half, batch_size, num_requests)

    def play_hindsight(self, half: int, batch_size: int, num_requests: int) -> list[Played]:
        """Let every request play its best fixed arm."""
        costs = Costs(self.trace, self.tables, self.arms, batch_size)
        best = best_arms(costs, self.halves[half])
        player = PlannerPlayer(
            self.trace,
            self.tables,
            PolicyConfig(gammas=self.gammas),
            options=lambda request: _pinned(best[request]),
        )
        return self._run(player, half, batch_size, num_requests)

    def play_clairvoyant(self, half: int, batch_size: int, num_requests: int) -> list[Played]:
        """Let every round be the best."""
        costs = Costs(self.trace, self.tables, self.arms, batch_size)
        return self._run(Clairvoyant(costs), half, batch_size, num_requests)

    def config(self, policy: Policy) -> PolicyConfig:
        """Return the configuration with which a policy is deployed."""
        return PolicyConfig(
            learner=policy.learner,
            params=dict(policy.params),
            gammas=policy.gammas or self.gammas,
        )

    def new_pool(self, config: PolicyConfig | None = None) -> ReplayedPool:
        """Return a pool that has nothing yet."""
        return ReplayedPool(config or PolicyConfig(), self.trace.model)

    def queue(self, half: int) -> Iterator[TracedRequest]:
        """Yield the requests of one half in random order, over and over; the same every time."""
        return _shuffled(self.halves[half], np.random.default_rng(self._seed))

    def _run(self, player: Player, half: int, batch_size: int, num_requests: int) -> list[Played]:
        requests = self.halves[half]
        repeats = -(-num_requests // len(requests))
        replay = Replay(self.trace, self.tables, player, batch_size)
        return replay.run(self.queue(half), repeats * len(requests))


def rate(played: Sequence[Played]) -> float:
    """Return tokens a second of the whole batch.

    >>> from policy_service.api import RequestFeatures
    >>> request = TracedRequest("a", "", "", RequestFeatures(), 5, 11, 0)
    >>> rate([Played(request, ms=1000.0, rounds=5, early_tokens=10, early_ms=1000.0)])
    10.0
    """
    return 1e3 * sum(one.tokens for one in played) / sum(one.ms for one in played)


def _shuffled(
    requests: Sequence[TracedRequest], rng: np.random.Generator
) -> Iterator[TracedRequest]:
    """Yield all requests in random order, over and over."""
    while True:
        for index in rng.permutation(len(requests)):
            yield requests[index]


def _pinned(arm: Arm) -> SpeculationOptions:
    if arm == NONE:
        return SpeculationOptions(mode="off")
    return SpeculationOptions(drafter=arm.drafter, gamma=arm.gamma)
