"""Where Ray's autoscaler puts what the application asks for: its real scheduler, on our groups.

The demands are those of the application that ``cluster.serve_app`` builds of the rendered
configuration; the nodes are what the autoscaler makes of the rendered groups. Nothing is started.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)
from ray.autoscaler.v2.event_logger import AutoscalerEventLogger
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.serve._private.build_app import build_app as build_deployments

from cluster.kuberay import read_config
from cluster.serve_app import build_app
from models.store import ModelFolder
from tests.k8s.chart import NAMESPACE, Manifest, cluster_of, serve_config, worker_groups

ROLE = "banditserve/role"
# Modules of Ray without types.
_raylet: Any = import_module("ray._raylet")
_common: Any = import_module("ray.core.generated.common_pb2")
_autoscaler: Any = import_module("ray.core.generated.autoscaler_pb2")
_IN = _common.LabelSelectorOperator.Value("LABEL_OPERATOR_IN")


@dataclass(frozen=True)
class Demand:
    """Replicas of one deployment, each with its placement group taken as one piece.

    Attributes:
        name: The deployment's.
        resources: What each takes from its node.
        selector: Labels that its node must have.
        fewest: Replicas there are at least.
        most: Replicas there are at most.
    """

    name: str
    resources: dict[str, float]
    selector: dict[str, str]
    fewest: int
    most: int

    @property
    def role(self) -> str:
        """The role of the nodes that it is meant for, by its name."""
        if self.name.startswith("drafter_"):
            return "drafter"
        return {"policy": "ingress"}.get(self.name, self.name)


def check_placement(manifests: list[Manifest]) -> list[str]:
    """Return deployments that find no group, or another than theirs, and groups that stay empty."""
    cluster, demands = cluster_of(manifests), demands_of(manifests)
    return [
        *_check_each(cluster, demands),
        *_check_most(cluster, demands),
        *_check_readiness(manifests, cluster, demands),
    ]


def _check_each(cluster: Manifest, demands: list[Demand]) -> Iterator[str]:
    """From no nodes at all, a replica of a deployment starts a node of its group and no other."""
    for demand in demands:
        launched, infeasible = plan(cluster, [replace(demand, most=1)])
        if infeasible:
            yield f"{demand.name}: no group has {demand.resources} and {demand.selector}"
        elif set(launched) != {demand.role}:
            yield f"{demand.name}: lands in {sorted(launched)}, expected {demand.role}"


def _check_most(cluster: Manifest, demands: list[Demand]) -> Iterator[str]:
    """All the replicas that there may be fit into all the nodes that there may be."""
    _, infeasible = plan(cluster, demands)
    for resources in infeasible:
        yield f"maxReplicas: no room for a replica with {resources}"


def _check_readiness(
    manifests: list[Manifest], cluster: Manifest, demands: list[Demand]
) -> Iterator[str]:
    """A pod without a Serve replica never becomes ready, so no group has more than are needed."""
    needed, _ = plan(cluster, [replace(demand, most=demand.fewest) for demand in demands])
    for name, group in worker_groups(manifests).items():
        if not any(demand.selector.get(ROLE) == name for demand in demands):
            yield f"group {name}: nothing runs there, so its pods never become ready"
        elif group["minReplicas"] > needed.get(name, 0):
            yield (
                f"group {name}: minReplicas {group['minReplicas']}, but the fewest replicas need "
                f"only {needed.get(name, 0)} nodes; the others never become ready"
            )


def plan(cluster: Manifest, demands: list[Demand]) -> tuple[dict[str, int], list[dict[str, float]]]:
    """Return the nodes that the autoscaler starts, from none, and the demands that it cannot meet.

    Args:
        cluster: The spec of a RayCluster; its lower bounds are taken as 0.
        demands: ``most`` replicas of each.
    """
    spec = copy.deepcopy(cluster)
    for group in spec["workerGroupSpecs"]:
        group["minReplicas"] = group["replicas"] = 0
    body = {"metadata": {"name": "plan", "namespace": NAMESPACE}, "spec": spec}
    config = AutoscalingConfig(_derive_autoscaling_config_from_ray_cr(body), skip_content_hash=True)
    events: Any = logging.getLogger(__name__)  # has the one method that is called
    scheduler = ResourceDemandScheduler(AutoscalerEventLogger(events))
    reply = scheduler.schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=config.get_node_type_configs(),
            max_num_nodes=config.get_max_num_nodes(),
            idle_timeout_s=300,
            resource_requests=[_request(demand) for demand in demands],
        )
    )
    infeasible = [
        dict(ResourceRequestUtil.to_resource_map(item))
        for item in reply.infeasible_resource_requests
    ]
    return {item.instance_type: item.count for item in reply.to_launch}, infeasible


def _request(demand: Demand) -> Any:
    selectors = [[(key, _IN, [value]) for key, value in demand.selector.items()]]
    request = ResourceRequestUtil.make(
        demand.resources, label_selectors=selectors if demand.selector else None
    )
    return _autoscaler.ResourceRequestByCount(request=request, count=demand.most)


def demands_of(manifests: list[Manifest]) -> list[Demand]:
    """Return what the application asks for, with Serve's own options laid over it."""
    (app,) = serve_config(manifests)["applications"]
    options = {item["name"]: item for item in app.get("deployments", [])}
    return [
        _demand(deployment, options.get(deployment.name, {}))
        for deployment in serve_deployments(app)
    ]


def _demand(deployment: Any, options: Manifest) -> Demand:
    actor, bundles = _needs(deployment, options)
    resources: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            resources[name] = resources.get(name, 0.0) + amount
    if per_node := options.get("max_replicas_per_node"):
        resources[f"{_raylet.IMPLICIT_RESOURCE_PREFIX}banditserve:{deployment.name}"] = (
            1.0 / per_node
        )
    scaling = deployment._deployment_config.autoscaling_config
    fewest, most = (
        (scaling.min_replicas, scaling.max_replicas)
        if scaling
        else (deployment.num_replicas, deployment.num_replicas)
    )
    selectors = deployment._replica_config.placement_group_bundle_label_selector
    selector = selectors[0] if selectors else actor.get("label_selector", {})
    return Demand(deployment.name, resources, dict(selector), fewest, most)


def _needs(deployment: Any, options: Manifest) -> tuple[Manifest, list[dict[str, float]]]:
    """Return the options of a replica's actor, and what it takes: its placement group, if any."""
    actor: Manifest = options.get("ray_actor_options", deployment.ray_actor_options)
    bundles = deployment._replica_config.placement_group_bundles
    if bundles:
        return actor, bundles
    amounts = {"CPU": actor.get("num_cpus", 1), "GPU": actor.get("num_gpus", 0)}
    return actor, [{name: amount for name, amount in amounts.items() if amount}]


def serve_deployments(app: Manifest) -> tuple[Any, ...]:
    """Return the deployments of an application of ``serveConfigV2``, as Serve builds them."""
    return _deployments(json.dumps(app["args"], sort_keys=True))


@functools.cache
def _deployments(args: str) -> tuple[Any, ...]:
    config = read_config(json.loads(args))
    model = ModelFolder(Path("/nowhere"), config.model, "a test")
    built = build_deployments(build_app(config, config.redis, model), name="banditserve")
    return tuple(built.deployments)
