"""The system a drill is run on: nodes, Redis, application, and users who know the right replies."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.drills.api import Layout
from cluster.drills.traffic import Traffic, ask_once, questions
from cluster.kuberay import read_config
from cluster.loadtest.checks import StoredRounds
from cluster.loadtest.run import model_name
from cluster.loadtest.stored import stored_when_still
from cluster.nodes.application import (
    Note,
    running_redis,
    start_application,
    start_beside_head,
    worker_nodes,
)
from cluster.nodes.local_cluster import LocalCluster
from cluster.nodes.node import NodeSpec
from cluster.redis_server import PrivateRedis

NUM_QUESTIONS = 12


@dataclass
class Stage:
    """A system that serves.

    Attributes:
        layout: What it is made of.
        cluster: Its nodes.
        redis: The Redis of the counts.
        args: Its configuration.
        asked: What they ask.
        expected: What is right, by index of the question.
        note: Told what is done.
    """

    layout: Layout
    cluster: LocalCluster
    redis: PrivateRedis
    args: Mapping[str, Any]
    asked: Any
    expected: Mapping[int, str]
    note: Note

    def traffic(self, users: int = 4) -> Traffic:
        """Return users who know the right replies."""
        return Traffic(self.cluster.url, self.asked, users, self.expected)

    def verifiers(self) -> list[dict[str, Any]]:
        """Return what the Verifiers that answer say of themselves."""
        return reports(self.cluster.status()["verifiers"])

    def workers(self) -> list[dict[str, Any]]:
        """Return what the drafter hosts whose worker is up say of themselves."""
        hosts = self.cluster.status()["drafters"].values()
        return [found for entries in hosts for found in reports(entries) if found["up"]]

    def policy(self) -> dict[str, Any]:
        """Return what the Policy says of itself.

        Raises:
            IndexError: If it does not answer.
        """
        return reports([self.cluster.status()["policy"]])[0]

    def is_whole(self) -> bool:
        """Whether everything is there and knows of each other."""
        verifiers = self.verifiers()
        return (
            len(verifiers) == self.layout.verifier_nodes
            and len(self.workers()) == self.layout.drafter_nodes
            and bool(self.policy()["store_up"])
            and all(one["policy"]["up"] for one in verifiers)
            and all(view["up"] for one in verifiers for view in one["drafters"])
        )

    def wait_until_whole(self, timeout_s: float = 240.0) -> float:
        """Wait until everything is there, and return how long it took, in seconds."""
        return self.cluster.wait_until(self.is_whole, "everything to be there", timeout_s)

    def done_without(self) -> int:
        """Return how often Verifiers that answer did without a drafter."""
        return sum(
            int(view["done_without"]) for one in self.verifiers() for view in one["drafters"]
        )

    def num_drafts(self) -> int:
        """Return how many drafts the Verifiers that answer were given."""
        return sum(int(view["drafts"]) for one in self.verifiers() for view in one["drafters"])

    async def stored(self) -> dict[str, StoredRounds]:
        """Return what Redis holds, by arm, once it no longer grows."""
        model = await model_name(self.cluster.url, None)
        return await stored_when_still(self.redis.url, read_config(self.args).policy, model)


def reports(entries: Any) -> list[dict[str, Any]]:
    """Return the reports of those who answer."""
    return [entry["report"] for entry in entries if not entry["is_away"] and entry["report"]]


def kill(pid: int) -> None:
    """Kill a process without warning."""
    os.kill(pid, signal.SIGKILL)


@contextmanager
def open_stage(layout: Layout, model: Path, note: Note) -> Iterator[Stage]:
    """Start a system, learn the right replies while nothing is harmed, and end it afterwards.

    Args:
        layout: What it is made of.
        model: Folder of the target model.
        note: Told what is done.

    Raises:
        ClusterError: If it does not start.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drill-")))
        redis = stack.enter_context(running_redis(folder / "counts"))
        cluster = stack.enter_context(_cluster(stack, layout, folder))
        args = configuration(layout, model, redis.url, folder)
        start(cluster, layout, args, note)
        asked = questions(NUM_QUESTIONS, max_tokens=96)
        note("asking in calm")
        stage = Stage(layout, cluster, redis, args, asked, {}, note)
        stage.wait_until_whole()
        stage.expected = ask_once(cluster.url, asked, mode="off")
        yield stage


def configuration(layout: Layout, model: Path, redis_url: str, folder: Path) -> dict[str, Any]:
    """Return the configuration of a drill's system."""
    return {
        "model": str(model),
        "state_dir": str(folder / "state"),
        "redis": {"url": redis_url},
        "drain_timeout_s": 10,
        "verifier": {
            "num_replicas": layout.verifier_nodes,
            "num_cpus": 1,
            "label_selector": {"role": "verifier"},
            "engine": {"num_threads": 1, "cache_tokens": 16384},
        },
        "drafters": {
            "prompt_lookup": {
                "method": "prompt_lookup",
                "num_replicas": layout.drafter_nodes,
                "num_cpus": 0.7,
                "host_num_cpus": 0.3,
                "label_selector": {"role": "drafter"},
                "ping_period_s": 0.5,
            }
        },
    }


def start(cluster: LocalCluster, layout: Layout, args: Mapping[str, Any], note: Note) -> None:
    """Start the application of a drill's system.

    Raises:
        ClusterError: If it does not start.
    """
    if layout.gcs_on_redis:  # the head may be lost, so others have room for all replicas of ours
        workers = worker_nodes(layout.verifier_nodes, layout.drafter_nodes, verifier_cpus=2)
        start_beside_head(cluster, workers, args, note)
        return
    workers = worker_nodes(layout.verifier_nodes, layout.drafter_nodes)
    start_application(cluster, workers, args, note)


@contextmanager
def _cluster(stack: ExitStack, layout: Layout, folder: Path) -> Iterator[LocalCluster]:
    if not layout.gcs_on_redis:
        with LocalCluster() as cluster:
            yield cluster
        return
    tables = stack.enter_context(running_redis(folder / "tables"))
    password, _, address = tables.url.removeprefix("redis://:").partition("@")
    environment = {
        "RAY_REDIS_ADDRESS": address.removesuffix("/0"),
        "RAY_external_storage_namespace": f"drill-{time.time_ns()}",
    }
    head = NodeSpec(
        "head",
        "head",
        num_cpus=0,
        environment=environment,
        params={"redis_password": password},
    )
    with LocalCluster(head) as cluster:
        yield cluster
