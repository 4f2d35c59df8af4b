"""What the chart renders: kinds, fields, names and series; and planted faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.k8s.chart import CASES, Manifest, of_kind, ray_service, rendered
from tests.k8s.checks.builtin_kinds import check_builtin_kinds
from tests.k8s.checks.custom_kinds import check_custom_kinds
from tests.k8s.checks.references import check_references
from tests.k8s.checks.series_named import check_series
from tests.k8s.faults import Fault, container, drop, group, head, in_args, pod_of, spec_of

Check = Callable[[list[Manifest]], list[str]]

CHECKS: tuple[Check, ...] = (
    check_builtin_kinds,
    check_custom_kinds,
    check_references,
    check_series,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_right(case: str, check: Check) -> None:
    assert check(rendered(case)) == []


BUILTIN_FAULTS = (
    Fault(
        "unknown field of a budget",
        lambda all_: spec_of(all_, "PodDisruptionBudget").update(minAvailible=1),
        "minAvailible",
    ),
    Fault(
        "unknown field of a pod",
        lambda all_: pod_of(head(all_)).update(terminationGracePeriod=60),
        "terminationGracePeriod",
    ),
    Fault(
        "a port that is a word",
        lambda all_: container(all_, "verifier")["ports"][0].update(containerPort="metrics"),
        "'metrics' is not of type 'integer'",
    ),
    Fault(
        "a probe without an action's command",
        lambda all_: container(all_, "drafter")["readinessProbe"]["exec"].update(comand=["true"]),
        "comand",
    ),
    Fault(
        "a network policy without pods",
        lambda all_: spec_of(all_, "NetworkPolicy").update(podselector={}),
        "podselector",
    ),
    Fault(
        "a version that is no more",
        lambda all_: of_kind(all_, "PodDisruptionBudget")[0].update(apiVersion="policy/v1beta1"),
        "no kind of this version",
    ),
)

CUSTOM_FAULTS = (
    Fault(
        "unknown field of the RayService",
        lambda all_: ray_service(all_)["spec"].update(serveConfig=""),
        "serveConfig",
    ),
    Fault(
        "unknown field of a group",
        lambda all_: group(all_, "verifier").update(maxReplica=3),
        "maxReplica",
    ),
    Fault(
        "missing bound of a group",
        lambda all_: group(all_, "drafter").pop("minReplicas"),
        "'minReplicas' is a required property",
    ),
    Fault(
        "start parameter that is no string",
        lambda all_: head(all_)["rayStartParams"].update({"num-cpus": 0}),
        "0 is not of type 'string'",
    ),
    Fault(
        "time-out without a unit",
        lambda all_: spec_of(all_, "HTTPRoute")["rules"][0]["timeouts"].update(request="3600"),
        "3600",
    ),
    Fault(
        "alert without an expression",
        lambda all_: spec_of(all_, "PrometheusRule")["groups"][0]["rules"][0].pop("expr"),
        "'expr' is a required property",
    ),
    Fault(
        "misspelt kind",
        lambda all_: of_kind(all_, "PodMonitor")[0].update(kind="PodMonitors"),
        "no such kind",
    ),
)

REFERENCE_FAULTS = (
    Fault(
        "budget for another role",
        lambda all_: spec_of(all_, "PodDisruptionBudget")["selector"]["matchLabels"].update(
            {"banditserve/role": "verifer"}
        ),
        "no pod has labels",
    ),
    Fault(
        "monitor of other pods",
        lambda all_: spec_of(all_, "PodMonitor")["selector"]["matchLabels"].update(
            {"banditserve/part": "rays"}
        ),
        "no pod has labels",
    ),
    Fault(
        "monitor of a port that is none",
        lambda all_: spec_of(all_, "PodMonitor")["podMetricsEndpoints"][0].update(port="metric"),
        "no pod has port metric",
    ),
    Fault(
        "service of a port that is none",
        lambda all_: spec_of(all_, "Service")["ports"][0].update(targetPort="valkey"),
        "no pod has port valkey",
    ),
    Fault("no claim for models", drop("PersistentVolumeClaim"), "nobody makes"),
    Fault("no configuration of Redis", drop("ConfigMap"), "nobody makes"),
    Fault(
        "mount of no volume",
        lambda all_: pod_of(group(all_, "verifier"))["volumes"].pop(0),
        "which is no volume",
    ),
    Fault(
        "password written out",
        lambda all_: container(all_, "ingress")["env"].append(
            {"name": "REDIS_PASSWORD", "value": "x"}
        ),
        "is written out",
    ),
    Fault(
        "root", lambda all_: pod_of(group(all_, "drafter")).pop("securityContext"), "run as root"
    ),
    Fault(
        "killed while draining",
        lambda all_: pod_of(group(all_, "verifier")).update(terminationGracePeriodSeconds=30),
        "is killed before",
    ),
    Fault("no drain", lambda all_: container(all_, "ingress").pop("lifecycle"), "preStop does not"),
    Fault(
        "replicas that drain longer",
        in_args(lambda args: args.update(drain_timeout_s=10_000)),
        "does not drain for 10000 s",
    ),
    Fault(
        "route to another service",
        lambda all_: spec_of(all_, "HTTPRoute")["rules"][0]["backendRefs"][0].update(name="x"),
        "requests go to",
    ),
)


def _alert(expression: str) -> Any:
    def planted(manifests: list[Manifest]) -> None:
        spec_of(manifests, "PrometheusRule")["groups"][0]["rules"][0]["expr"] = expression

    return planted


SERIES_FAULTS = (
    Fault("series of ours that is none", _alert("vllm:num_request_running > 1"), "catalogue"),
    Fault("series of Ray that is none", _alert("ray_serve_replicas == 0"), "has no such series"),
    Fault("series of nobody", _alert("up_to_date"), "nobody is known"),
    Fault("no PromQL", _alert("rate(vllm:num_requests_running[5m)"), "rate("),
)

FAULTS = [
    *((check_builtin_kinds, fault) for fault in BUILTIN_FAULTS),
    *((check_custom_kinds, fault) for fault in CUSTOM_FAULTS),
    *((check_references, fault) for fault in REFERENCE_FAULTS),
    *((check_series, fault) for fault in SERIES_FAULTS),
]


@pytest.mark.parametrize(("check", "fault"), FAULTS, ids=[str(fault) for _, fault in FAULTS])
def test_a_planted_fault_is_found_by_its_check(check: Check, fault: Fault) -> None:
    manifests = rendered("everything")
    fault.change(manifests)
    problems = check(manifests)
    assert any(fault.found in problem for problem in problems), problems
