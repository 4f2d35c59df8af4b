"""The Policy on a real local Ray and a real Redis, killed while replicas exchange counts."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import serve

from policy_service.api import AskItem, Outcome, RequestFeatures, SpeculationOptions
from policy_service.client import PolicyClient
from policy_service.config import PolicyConfig
from policy_service.contexts import GLOBAL
from policy_service.deployment import bind_policy
from policy_service.redis_pool.store import RedisStore
from tests.integration.redis_fixture import RedisProcess

pytestmark = [pytest.mark.ray, pytest.mark.redis]

CONFIG = PolicyConfig(
    sync_period_s=0.05, sync_timeout_s=1.0, publish_period_s=0.1, learner="uniform"
)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def policy(serve_port: int, redis: RedisProcess) -> Iterator[Any]:
    yield serve.run(bind_policy(CONFIG, redis.config, "m"), name="policy", route_prefix=None)
    serve.delete("policy")


class Replica:
    """A replica's half: a planner that plays, a client that syncs."""

    def __init__(self, policy: Any, name: str) -> None:
        self.client = PolicyClient(CONFIG, name, f"{name}-1", "m", policy, {"a": "1"}, seed=1)
        self.client.planner.open("s", RequestFeatures(tenant=name), SpeculationOptions())
        self.num_rounds = 0
        self.task = asyncio.create_task(self.client.run())

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            [decision] = self.client.planner.ask([AskItem("s", 9)])
            outcome = Outcome(decision.arm.gamma, decision.arm.gamma, 1, 2, 1.0, 0.0, 1, "ok")
            self.client.planner.observe([("s", decision, outcome)])
        self.num_rounds += rounds

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        assert await self.client.flush(30)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, "the condition never held"
        await asyncio.sleep(0.05)


async def call(policy: Any, method: str) -> dict[str, Any] | None:
    """Call the Policy; None while it is away."""
    try:
        async with asyncio.timeout(5):
            reply: dict[str, Any] = await getattr(policy, method).remote()
            return reply
    except Exception:
        return None


async def play_while_it_is_away(replica: Replica, policy: Any, pid: int) -> None:
    """Play until another process has taken over and the replica has exchanged with it."""

    async def is_back() -> bool:
        replica.play(5)
        status = await call(policy, "status")
        return status is not None and status["pid"] != pid and replica.client.status()["up"]

    await until(is_back)


def global_pulls(dump: dict[str, Any] | None) -> int:
    assert dump is not None
    return sum(arm["pulls"] for arm in dump["contexts"][GLOBAL].values())


def test_killed_policy_loses_and_repeats_nothing(policy: Any) -> None:
    async def test() -> None:
        replicas = [Replica(policy, name) for name in ("one", "two")]
        for _ in range(2):
            for replica in replicas:
                replica.play(100)
            status = await call(policy, "status")
            assert status is not None
            os.kill(status["pid"], signal.SIGKILL)
            await play_while_it_is_away(replicas[0], policy, status["pid"])
        for replica in replicas:
            await replica.stop()
        dump = await call(policy, "dump")
        assert global_pulls(dump) == sum(replica.num_rounds for replica in replicas)
        assert replicas[0].client.status()["snapshot_version"] > 0

    asyncio.run(test())


def test_killed_redis_is_survived_and_shown(policy: Any, redis: RedisProcess) -> None:
    async def test() -> None:
        replica = Replica(policy, "one")
        replica.play(50)

        async def has_snapshot() -> bool:
            return bool(replica.client.status()["snapshot_version"])

        await until(has_snapshot)
        redis.kill()
        replica.play(50)

        async def is_shown() -> bool:
            status = await call(policy, "status")
            away = replica.client.status()["away_since"]
            return status is not None and not status["store_up"] and away is not None

        await until(is_shown)
        assert replica.client.status()["missed"] > 0
        assert replica.client.status()["snapshot_version"] > 0
        redis.start()
        replica.play(50)
        await replica.stop()
        assert global_pulls(await call(policy, "dump")) == 150
        assert replica.client.status()["up"]

    asyncio.run(test())


def test_a_reset_reaches_a_running_system(policy: Any, redis: RedisProcess) -> None:
    async def test() -> None:
        replica = Replica(policy, "one")
        replica.play(50)

        async def knows(pulls: int) -> bool:
            dump = await call(policy, "dump")
            return dump is not None and GLOBAL in dump["contexts"] and global_pulls(dump) == pulls

        async def has_the_last_snapshot() -> bool:
            status = await call(policy, "status")
            version = replica.client.status()["snapshot_version"]
            return status is not None and version == status["snapshot_version"]

        await until(lambda: knows(50))
        await until(has_the_last_snapshot)
        before = replica.client.status()["snapshot_version"]
        store = RedisStore(redis.config)
        assert await store.reset("m", 0) == 1
        await store.close()

        async def has_another() -> bool:
            return bool(replica.client.status()["snapshot_version"] > before)

        await until(has_another)
        replica.play(20)
        await replica.stop()
        await until(lambda: knows(20))

    asyncio.run(test())


def test_starts_without_redis(serve_port: int, redis: RedisProcess) -> None:
    redis.kill()
    policy = serve.run(bind_policy(CONFIG, redis.config, "m"), name="early", route_prefix=None)

    async def test() -> None:
        replica = Replica(policy, "one")
        replica.play(10)
        redis.start()
        await replica.stop()
        assert global_pulls(await call(policy, "dump")) == 10

    try:
        asyncio.run(test())
    finally:
        serve.delete("early")
