"""What Serve is told, and where the autoscaler puts it; and planted faults of both."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.k8s.chart import CASES, Manifest, cluster_of, rendered
from tests.k8s.checks.placement import check_placement, demands_of, plan
from tests.k8s.checks.serve_options import check_serve_options
from tests.k8s.faults import (
    Fault,
    container,
    group,
    in_app,
    in_args,
    in_serve_config,
)

Check = Callable[[list[Manifest]], list[str]]


@pytest.mark.parametrize("case", CASES)
def test_serve_and_banditserve_take_what_they_are_told(case: str) -> None:
    assert check_serve_options(rendered(case)) == []


@pytest.mark.parametrize("case", CASES)
def test_every_deployment_lands_in_its_group_and_nowhere_else(case: str) -> None:
    assert check_placement(rendered(case)) == []


def test_from_no_nodes_at_all_a_busy_system_gets_nodes_of_every_group() -> None:
    manifests = rendered("production")
    launched, infeasible = plan(cluster_of(manifests), demands_of(manifests))
    # 4 workers of 1.05 CPUs and 6 of 2.05 on nodes of 4: none holds two of the large ones.
    assert launched == {"ingress": 3, "verifier": 8, "drafter": 6}
    assert infeasible == []


SERVE_FAULTS = (
    Fault("key at the top", in_serve_config(lambda top: top.update(proxy="x")), "proxy: unknown"),
    Fault(
        "key of HTTP",
        in_serve_config(lambda top: top["http_options"].update(prot=1)),
        "http_options.prot: unknown",
    ),
    Fault(
        "key of the application",
        in_app(lambda app: app.update(route="/")),
        "applications[0].route: unknown",
    ),
    Fault(
        "key of a deployment",
        in_app(lambda app: app["deployments"][0].update(max_replica_per_node=1)),
        "deployments[0].max_replica_per_node: unknown",
    ),
    Fault(
        "key of an actor",
        in_app(lambda app: app["deployments"][1].update(ray_actor_options={"cpus": 1})),
        "ray_actor_options.cpus: unknown",
    ),
    Fault(
        "value that cannot be",
        in_app(lambda app: app["deployments"][0].update(max_ongoing_requests=0)),
        "max_ongoing_requests",
    ),
    Fault(
        "deployment that is none",
        in_app(lambda app: app["deployments"][0].update(name="Ingress")),
        "Ingress is none of",
    ),
    Fault(
        "builder that is none",
        in_app(lambda app: app.update(import_path="cluster.kuberay:make")),
        "import_path",
    ),
    Fault("key of ours", in_args(lambda args: args.update(modle="x")), "did you mean model?"),
    Fault(
        "no Redis",
        in_args(lambda args: args["redis"].pop("url")),
        "expected the address of a Redis",
    ),
)

PLACEMENT_FAULTS = (
    Fault(
        "wrong label of a group",
        lambda all_: group(all_, "verifier")["labels"].update({"banditserve/role": "verifer"}),
        "verifier: no group has",
    ),
    Fault(
        "another group's label",
        lambda all_: group(all_, "drafter")["labels"].update({"banditserve/role": "verifier"}),
        "drafter_prompt_lookup: no group has",
    ),
    Fault(
        "no selector",
        in_args(lambda args: args["drafters"]["prompt_lookup"].pop("label_selector")),
        "drafter_prompt_lookup: lands in",
    ),
    Fault(
        "another group's selector",
        in_args(
            lambda args: args["policy"]["label_selector"].update({"banditserve/role": "drafter"})
        ),
        "policy: lands in ['drafter'], expected ingress",
    ),
    Fault(
        "missing GPU",
        lambda all_: [
            amounts.pop("nvidia.com/gpu")
            for amounts in container(all_, "verifier")["resources"].values()
        ],
        "verifier: no group has",
    ),
    Fault(
        "too few CPUs",
        lambda all_: container(all_, "ingress")["resources"]["limits"].update(cpu="1"),
        "ingress: no group has",
    ),
    Fault(
        "kind of accelerator that no group has",
        in_args(
            lambda args: args["verifier"]["label_selector"].update(
                {"ray.io/accelerator-type": "A100"}
            )
        ),
        "verifier: no group has",
    ),
    Fault(
        "fewer nodes than replicas",
        lambda all_: group(all_, "verifier").update(maxReplicas=5),
        "maxReplicas: no room",
    ),
    Fault(
        "nodes without a replica",
        lambda all_: group(all_, "drafter").update(minReplicas=3),
        "the others never become ready",
    ),
    Fault(
        "group without a deployment",
        in_args(lambda args: args["drafters"].clear()),
        "group drafter: nothing runs there",
    ),
)

FAULTS = [
    *((check_serve_options, fault) for fault in SERVE_FAULTS),
    *((check_placement, fault) for fault in PLACEMENT_FAULTS),
]


@pytest.mark.parametrize(("check", "fault"), FAULTS, ids=[str(fault) for _, fault in FAULTS])
def test_a_planted_fault_is_found_by_its_check(check: Check, fault: Fault) -> None:
    manifests = rendered("production")
    fault.change(manifests)
    problems = check(manifests)
    assert any(fault.found in problem for problem in problems), problems
