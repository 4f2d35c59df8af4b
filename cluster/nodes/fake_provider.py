"""Ray's own node autoscaler (v2) on this machine, with the node provider that Ray fakes for tests.

It starts and ends typed nodes as pods come and go on Kubernetes: what a chart's groups and
selectors lead to is seen without a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.nodes.local_cluster import LocalCluster
from cluster.nodes.node import ADDRESS, NodeSpec
from cluster.redis_server import free_port

HEAD_ID = "f" * 51 + "00000"
_MODULE = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
_HEAD_TYPE = "ray.head.default"
_EMPTY_LISTS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
)


@dataclass(frozen=True, slots=True)
class NodeType:
    """A kind of node that the autoscaler may start.

    Attributes:
        name: Of the kind.
        num_cpus: CPUs of a node.
        labels: Labels of a node.
        min_nodes: Fewest nodes.
        max_nodes: Most nodes.
    """

    name: str
    num_cpus: int
    labels: Mapping[str, str]
    min_nodes: int = 0
    max_nodes: int = 2


def autoscaling_cluster(
    types: Sequence[NodeType], idle_s: float, folder: Path, head_cpus: int = 0
) -> LocalCluster:
    """Return a cluster whose head adds nodes that are asked for and removes idle ones.

    Args:
        types: Kinds of nodes.
        idle_s: After how long without work a node is removed.
        folder: For the autoscaler's configuration.
        head_cpus: CPUs of the head.
    """
    port = free_port()
    path = folder / "autoscaling.json"  # JSON is YAML
    path.write_text(json.dumps(autoscaling_config(types, idle_s, f"{ADDRESS}:{port}")))
    environment = {
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
    }
    head = NodeSpec(
        "head",
        "head",
        num_cpus=head_cpus,
        environment=environment,
        params={"autoscaling_config": str(path)},
    )
    return LocalCluster(head, port)


def autoscaling_config(types: Sequence[NodeType], idle_s: float, address: str) -> dict[str, Any]:
    """Return the autoscaler's configuration."""
    node_types: dict[str, Any] = {
        _HEAD_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    }
    for kind in types:
        node_types[kind.name] = {
            "resources": {"CPU": kind.num_cpus, "object_store_memory": 100_000_000},
            "labels": dict(kind.labels),
            "node_config": {},
            "min_workers": kind.min_nodes,
            "max_workers": kind.max_nodes,
        }
    return {
        "cluster_name": "local",
        "max_workers": sum(kind.max_nodes for kind in types),
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": idle_s / 60,
        "provider": {
            "type": "external",
            "module": _MODULE,
            "launch_multiple": True,
            "gcs_address": address,
            "head_node_id": HEAD_ID,
        },
        "available_node_types": node_types,
        "head_node_type": _HEAD_TYPE,
        "auth": {"ssh_user": "nobody"},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **{name: [] for name in _EMPTY_LISTS},
    }
