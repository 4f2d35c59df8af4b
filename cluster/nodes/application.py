"""Our application on a local cluster: Redis beside it, the head first, then the other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.nodes.local_cluster import LocalCluster
from cluster.nodes.node import ADDRESS, NodeSpec
from cluster.redis_server import PrivateRedis, free_port

INGRESS_TIMEOUT_S = 240.0

Note = Callable[[str], None]


@contextmanager
def running_redis(folder: Path) -> Iterator[PrivateRedis]:
    """Run a private Redis that keeps its data in a folder."""
    redis = PrivateRedis(folder, folder / "redis.log")
    redis.start()
    try:
        yield redis
    finally:
        redis.stop()


def worker_node(name: str, role: str, num_cpus: int = 1) -> NodeSpec:
    """Return a node for Verifiers or drafters, with a label that names it."""
    return NodeSpec(name, role, num_cpus, {"name": name}, proxy_port=free_port())


def worker_nodes(num_verifiers: int, num_drafters: int, verifier_cpus: int = 1) -> list[NodeSpec]:
    """Return nodes ``v1``, ``v2``, ... for Verifiers and ``d1``, ``d2``, ... for drafters."""
    return [
        *(worker_node(f"v{n}", "verifier", verifier_cpus) for n in range(1, num_verifiers + 1)),
        *(worker_node(f"d{n}", "drafter") for n in range(1, num_drafters + 1)),
    ]


def start_application(
    cluster: LocalCluster, workers: Sequence[NodeSpec], args: Mapping[str, Any], note: Note
) -> None:
    """Deploy, add the other nodes and wait until requests are answered.

    Ingress and Policy start before there are other nodes, and if those have just the CPUs that
    their own replicas reserve, they stay on the head.

    Raises:
        ClusterError: If it does not start.
    """
    note("deploying")
    cluster.deploy(args)
    cluster.wait_until(lambda: bool(cluster.status()), "Ingress to start", INGRESS_TIMEOUT_S)
    note("adding nodes")
    cluster.add(*workers)
    note("waiting for Verifiers")
    cluster.wait_until_ready()


def start_beside_head(
    cluster: LocalCluster, workers: Sequence[NodeSpec], args: Mapping[str, Any], note: Note
) -> None:
    """Do the same with nothing of ours on the head; it is the first node's proxy that is asked.

    Raises:
        ClusterError: If it does not start.
    """
    note("adding nodes")
    cluster.add(*workers)
    note("deploying")
    cluster.deploy(args, proxies="EveryNode")
    cluster.url = f"http://{ADDRESS}:{workers[0].proxy_port}"
    note("waiting for Verifiers")
    cluster.wait_until_ready()
