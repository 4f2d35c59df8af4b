"""What one Policy merges, and how soon what a replica learnt reaches another.

One ``PolicyService`` over a real server, and 100 simulated replicas in the same process, each with
a ledger of its own. They send the counts of real rounds: a replay's, taken every ``SOON_ROUNDS``
rounds as replicas do. First all send as fast as they are answered, which gives the rounds merged a
second; then each sends once in ``sync_period_s``, while a few replicas look for each other's
counts in the snapshots that they are given.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cluster.redis_server import PrivateRedis
from cluster.traces.planning import PlannerPlayer
from cluster.traces.replay import Replay
from policy_service.api import ArmCounts, CellKey, Snapshot
from policy_service.client import SOON_ROUNDS
from policy_service.config import PolicyConfig
from policy_service.ledger import Ledger
from policy_service.planner import Planner
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.store import RedisStore
from policy_service.service import PolicyService
from tests.benchmarks.policy.stage import Stage

NUM_REPLICAS = 100
NUM_WATCHED = 20
BATCH = 32
MERGE_S = 8.0
WATCH_S = 15.0
MODEL = "bench"
Deltas = Mapping[CellKey, ArmCounts]


@dataclass
class Collector:
    """Takes what a planner counts, as often as a replica sends it."""

    deltas: list[Deltas] = field(default_factory=list)
    rounds: int = 0

    def exchange(self, planner: Planner) -> None:
        """Do nothing: nothing is given back."""

    def pass_time(self, planner: Planner, ms: float) -> None:
        """Count a step of the batch."""
        self.rounds += BATCH
        if self.rounds >= SOON_ROUNDS * (len(self.deltas) + 1):
            self.deltas.append(planner.take_deltas())


class Replica:
    """Sends counts to the Policy, as a replica's client does."""

    def __init__(self, service: PolicyService, config: PolicyConfig, name: str) -> None:
        self._service = service
        self._ledger = Ledger(config, name, "1", MODEL)
        self.snapshot: Snapshot | None = None

    async def sync(self, deltas: Deltas) -> None:
        """Send counts and take over the snapshot."""
        self._ledger.add(deltas, time.time())
        version = self.snapshot.version if self.snapshot else 0
        batches = self._ledger.outgoing(time.time())
        reply = await self._service.sync(batches, version)
        if reply.store_away:
            self._ledger.acknowledge(reply.applied_sequence, time.time())
        elif batches:
            self._ledger.reconcile(reply.applied_sequence, time.time())
        self.snapshot = reply.snapshot or self.snapshot


def merging_figures(stage: Stage) -> dict[str, float]:
    """Return rounds merged a second, and the 99th percentile of the way to another replica."""
    collector = Collector()
    config = PolicyConfig(learner="goodput", gammas=stage.gammas)
    player = PlannerPlayer(stage.trace, stage.tables, config, pool=collector)
    Replay(stage.trace, stage.tables, player, BATCH).run(stage.queue(0), 2 * BATCH)
    with tempfile.TemporaryDirectory() as folder:
        server = PrivateRedis(Path(folder), Path(folder) / "redis.log")
        server.start()
        try:
            return asyncio.run(_measure(server.url, config, collector.deltas))
        finally:
            server.stop()


async def _measure(url: str, config: PolicyConfig, deltas: Sequence[Deltas]) -> dict[str, float]:
    service = PolicyService(config, RedisStore(RedisConfig(url=url)), MODEL, time.time)
    publisher = asyncio.create_task(_publish(service, config.publish_period_s))
    replicas = [Replica(service, config, f"r{index}") for index in range(NUM_REPLICAS)]
    try:
        started = time.perf_counter()
        until = started + MERGE_S
        sent = await asyncio.gather(*(_flood(one, deltas, until) for one in replicas))
        merged_per_s = sum(sent) * SOON_ROUNDS / (time.perf_counter() - started)
        until = time.perf_counter() + WATCH_S
        period_s = config.sync_period_s
        steady = [_steady(one, deltas, period_s, until) for one in replicas]
        watching = [_watch(service, config, index, until) for index in range(NUM_WATCHED)]
        seen = await asyncio.gather(*watching, *steady)
    finally:
        publisher.cancel()
        await asyncio.gather(publisher, return_exceptions=True)
        await service.close()
    ways = [seconds for some in seen for seconds in some]
    return {
        "merged_per_s": merged_per_s,
        "merged_cells_per_batch": float(np.mean([len(one) for one in deltas])),
        "snapshot_p50_s": float(np.quantile(ways, 0.5)),
        "snapshot_p99_s": float(np.quantile(ways, 0.99)),
    }


async def _publish(service: PolicyService, period_s: float) -> None:
    """Make snapshots as the deployment does."""
    while True:
        await service.publish()
        await asyncio.sleep(period_s)


async def _flood(replica: Replica, deltas: Sequence[Deltas], until: float) -> int:
    """Send as fast as the Policy answers; return how often."""
    count = 0
    while time.perf_counter() < until:
        await replica.sync(deltas[count % len(deltas)])
        count += 1
    return count


async def _steady(
    replica: Replica, deltas: Sequence[Deltas], period_s: float, until: float
) -> list[float]:
    """Send once a period, each replica at another time of it."""
    await asyncio.sleep(period_s * float(np.random.default_rng(id(replica)).random()))
    count = 0
    while (now := time.perf_counter()) < until:
        await replica.sync(deltas[count % len(deltas)])
        count += 1
        await asyncio.sleep(max(0.0, period_s - (time.perf_counter() - now)))
    return []


async def _watch(
    service: PolicyService, config: PolicyConfig, index: int, until: float
) -> list[float]:
    """Return how long it took, time after time, from one replica's sync to another's snapshot."""
    sender = Replica(service, config, f"sender{index}")
    receiver = Replica(service, config, f"receiver{index}")
    key = CellKey("global", f"watched{index}:1", "1")
    ways = []
    while (started := time.perf_counter()) < until:
        before = _pulls(receiver, key)
        await sender.sync({key: ArmCounts(pulls=10, reward_tokens=10)})
        while _pulls(receiver, key) < before + 5:
            await asyncio.sleep(config.sync_period_s)
            await receiver.sync({})
        ways.append(time.perf_counter() - started)
    return ways


def _pulls(replica: Replica, key: CellKey) -> float:
    cells = replica.snapshot.cells if replica.snapshot else {}
    return cells[key][0] if key in cells else 0.0
