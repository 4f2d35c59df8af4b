"""Ray's node autoscaler, with typed nodes that it starts and ends here, as on Kubernetes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.drills.api import Layout
from cluster.drills.small_model import save_small_model
from cluster.drills.stage import configuration
from cluster.nodes.application import running_redis
from cluster.nodes.fake_provider import NodeType, autoscaling_cluster
from cluster.nodes.known import live_nodes
from cluster.nodes.local_cluster import LocalCluster

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.redis]

IDLE_S = 6.0
TYPES = (
    NodeType("verifier-node", 1, {"role": "verifier"}, max_nodes=2),
    NodeType("drafter-node", 1, {"role": "drafter"}, max_nodes=2),
)


def roles(cluster: LocalCluster) -> Counter[str]:
    """Return how many live nodes of each role there are, the head left out."""
    return Counter(labels.get("role", "?") for labels in live_nodes(cluster.address).values()) - (
        Counter(head=1)
    )


def test_nodes_of_each_kind_come_when_asked_for_and_go_when_idle(tmp_path: Path) -> None:
    model = save_small_model(tmp_path)
    with (
        running_redis(tmp_path / "counts") as redis,
        autoscaling_cluster(TYPES, IDLE_S, tmp_path, head_cpus=1) as cluster,
    ):
        assert roles(cluster) == Counter()
        args: dict[str, Any] = configuration(Layout(1, 1), model, redis.url, tmp_path)
        cluster.deploy(args)
        cluster.wait_until_ready()
        cluster.wait_until(
            lambda: roles(cluster) == Counter(verifier=1, drafter=1), "one node of each kind"
        )
        cluster.deploy({**args, "drafters": {}})
        cluster.wait_until(
            lambda: roles(cluster) == Counter(verifier=1), "the idle drafter node to go", 120.0
        )
        cluster.wait_until_ready()
