"""KubeRay's own rules: what is rendered keeps them, and a planted fault of each is found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.k8s.chart import CASES, cluster_of, ray_service, rendered
from tests.k8s.checks.operator_rules import check_operator_rules
from tests.k8s.faults import Change, Fault, container, group, head, pod_of


@pytest.mark.parametrize("case", CASES)
def test_the_operator_takes_what_is_rendered(case: str) -> None:
    assert check_operator_rules(rendered(case)) == []


def _annotate(key: str, value: str) -> Change:
    return lambda all_: ray_service(all_)["metadata"]["annotations"].update({key: value})


def _upgrade(**options: Any) -> Change:
    whole = {"gatewayClassName": "g", "stepSizePercent": 5, "intervalSeconds": 1, **options}
    strategy = {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": whole}
    return lambda all_: ray_service(all_)["spec"].update(upgradeStrategy=strategy)


def _head_env(name: str) -> Change:
    return lambda all_: pod_of(head(all_))["containers"][0]["env"].append(
        {"name": name, "value": "1"}
    )


OPERATOR_FAULTS = (
    Fault(
        "long name",
        lambda all_: ray_service(all_)["metadata"].update(name="a" * 48),
        "expected at most 47",
    ),
    Fault(
        "name with capitals",
        lambda all_: ray_service(all_)["metadata"].update(name="Bs"),
        "DNS-1035",
    ),
    Fault("no time to start", _annotate("ray.io/initializing-timeout", "0s"), "above 0"),
    Fault("word for a time", _annotate("ray.io/initializing-timeout", "soon"), "found 'soon'"),
    Fault("step above surge", _upgrade(stepSizePercent=50, maxSurgePercent=20), "stepSizePercent"),
    Fault("no interval", _upgrade(intervalSeconds=0), "intervalSeconds"),
    Fault("no class of gateway", _upgrade(gatewayClassName=""), "gatewayClassName"),
    Fault(
        "resources given twice",
        lambda all_: head(all_).update(resources={"CPU": "1"}),
        "both in rayStartParams and in resources",
    ),
    Fault(
        "labels among start parameters",
        lambda all_: group(all_, "verifier")["rayStartParams"].update(labels="a=b"),
        "labels in rayStartParams",
    ),
    Fault(
        "label with a wrong form",
        lambda all_: group(all_, "verifier")["labels"].update({"banditserve/role": "verifier!"}),
        "has a wrong form",
    ),
    Fault(
        "bounds the wrong way round",
        lambda all_: group(all_, "drafter").update(minReplicas=9),
        "minReplicas above maxReplicas",
    ),
    Fault(
        "pods that start again by themselves",
        lambda all_: pod_of(group(all_, "verifier")).update(restartPolicy="Always"),
        "expected Never",
    ),
    Fault(
        "autoscaler v1",
        lambda all_: cluster_of(all_)["autoscalerOptions"].update(version="v1"),
        "needs autoscaler v2",
    ),
    Fault("autoscaler by variable", _head_env("RAY_enable_autoscaler_v2"), "set autoscalerOptions"),
    Fault("Redis by variable", _head_env("RAY_REDIS_ADDRESS"), "RAY_REDIS_ADDRESS"),
    Fault("password by variable", _head_env("REDIS_PASSWORD"), "REDIS_PASSWORD"),
    Fault(
        "namespace in Redis",
        lambda all_: cluster_of(all_)["gcsFaultToleranceOptions"].update(
            externalStorageNamespace="bs"
        ),
        "externalStorageNamespace",
    ),
    Fault(
        "namespace by annotation",
        _annotate("ray.io/external-storage-namespace", "bs"),
        "conflicts with",
    ),
    Fault(
        "token with an old Ray",
        lambda all_: cluster_of(all_).update(rayVersion="2.51.1"),
        "2.52.0 or later",
    ),
    Fault(
        "head without the port",
        lambda all_: [
            port.update(name="http")
            for port in pod_of(head(all_))["containers"][0]["ports"]
            if port["name"] == "serve"
        ],
        "no port named serve",
    ),
    Fault(
        "head that takes work",
        lambda all_: head(all_)["rayStartParams"].pop("num-cpus"),
        "num-cpus",
    ),
    Fault(
        "readiness without the proxy",
        lambda all_: container(all_, "drafter")["readinessProbe"]["exec"].update(
            command=["bash", "-c", "wget -q -O- http://localhost:52365/api/local_raylet_healthz"]
        ),
        "does not ask 8000/-/healthz",
    ),
    Fault(
        "name of the head's service",
        lambda all_: head(all_).update(headService={"metadata": {"name": "x"}}),
        "must not be set",
    ),
)


@pytest.mark.parametrize("fault", OPERATOR_FAULTS, ids=str)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    manifests = rendered("everything")
    fault.change(manifests)
    problems = check_operator_rules(manifests)
    assert any(fault.found in problem for problem in problems), problems
