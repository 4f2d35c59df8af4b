"""What KubeRay's operator itself refuses: rules in its code, not in its definitions.

Ported from the meaning of KubeRay 1.7's ``validation.go``, and three rules of ours: the namespace
in Redis is the operator's to choose, nothing runs on the head, and no probe makes a worker ready
that has no proxy of Serve.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.k8s.chart import Manifest, cluster_of, ray_service

MAX_NAME = 47
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DURATION = re.compile(r"([0-9]+(\.[0-9]+)?(h|m|s))+|[0-9]+")
_RESOURCE_PARAMS = {"num-cpus", "num-gpus", "memory", "resources"}
_AUTH_SINCE = (2, 52, 0)


def check_operator_rules(manifests: list[Manifest]) -> list[str]:
    """Return what the operator would refuse."""
    service, cluster = ray_service(manifests), cluster_of(manifests)
    return [
        *_check_metadata(service),
        *_check_upgrade(service["spec"]),
        *_check_groups(cluster),
        *_check_autoscaler(cluster),
        *_check_redis(cluster, service["metadata"].get("annotations", {})),
        *_check_auth(cluster),
        *_check_head(cluster),
        *_check_network(cluster),
        *_check_readiness(cluster),
    ]


def _check_metadata(service: Manifest) -> Iterator[str]:
    name = service["metadata"]["name"]
    if len(name) > MAX_NAME:
        yield f"RayService name {name}: {len(name)} characters, expected at most {MAX_NAME}"
    if not _DNS_1035.fullmatch(name):
        yield f"RayService name {name}: expected a DNS-1035 label"
    timeout = service["metadata"].get("annotations", {}).get("ray.io/initializing-timeout")
    if timeout is not None and (not _DURATION.fullmatch(timeout) or not timeout.strip("0hms")):
        yield f"ray.io/initializing-timeout: expected a duration above 0, found {timeout!r}"


def _check_upgrade(spec: Manifest) -> Iterator[str]:
    strategy = spec.get("upgradeStrategy", {})
    kind = strategy.get("type", "NewCluster")
    if kind not in ("NewCluster", "NewClusterWithIncrementalUpgrade", "None"):
        yield f"upgradeStrategy.type: unknown {kind!r}"
    if spec.get("rayClusterDeletionDelaySeconds", 0) < 0:
        yield "rayClusterDeletionDelaySeconds: expected at least 0"
    if kind == "NewClusterWithIncrementalUpgrade":
        yield from _check_incremental(spec, strategy.get("clusterUpgradeOptions"))


def _check_incremental(spec: Manifest, options: Manifest | None) -> Iterator[str]:
    if not spec["rayClusterConfig"].get("enableInTreeAutoscaling"):
        yield "NewClusterWithIncrementalUpgrade: needs enableInTreeAutoscaling"
    if options is None:
        yield "NewClusterWithIncrementalUpgrade: needs clusterUpgradeOptions"
        return
    surge, step = options.get("maxSurgePercent", 100), options.get("stepSizePercent", -1)
    if not 0 <= surge <= 100:
        yield f"maxSurgePercent: expected 0 to 100, found {surge}"
    if not 0 <= step <= 100 or step > surge:
        yield f"stepSizePercent: expected 0 to maxSurgePercent {surge}, found {step}"
    if options.get("intervalSeconds", 0) <= 0:
        yield "intervalSeconds: expected above 0"
    if not options.get("gatewayClassName"):
        yield "gatewayClassName: expected one, found none"


def _all_groups(cluster: Manifest) -> Iterator[tuple[str, Manifest]]:
    yield "head", cluster["headGroupSpec"]
    for group in cluster["workerGroupSpecs"]:
        yield group["groupName"], group


def _check_groups(cluster: Manifest) -> Iterator[str]:
    names = [group["groupName"] for group in cluster["workerGroupSpecs"]]
    if len(set(names)) != len(names):
        yield f"group names: expected all different, found {names}"
    for name, group in _all_groups(cluster):
        params = group.get("rayStartParams", {})
        if not group["template"]["spec"].get("containers"):
            yield f"{name}: expected a container, found none"
        if _RESOURCE_PARAMS & params.keys() and group.get("resources"):
            yield f"{name}: resources both in rayStartParams and in resources"
        if "labels" in params:
            yield f"{name}: labels in rayStartParams"
        yield from _check_labels(name, group.get("labels", {}))
        if group.get("minReplicas", 0) > group.get("maxReplicas", 2**31 - 1):
            yield f"{name}: minReplicas above maxReplicas"


def _check_labels(name: str, labels: Manifest) -> Iterator[str]:
    for key, value in labels.items():
        prefix, slash, word = key.rpartition("/")
        if not _LABEL_NAME.fullmatch(word) or (slash and not _LABEL_PREFIX.fullmatch(prefix)):
            yield f"{name}: label key {key!r} has a wrong form"
        if value and not _LABEL_NAME.fullmatch(value):
            yield f"{name}: label value {value!r} of {key} has a wrong form"


def _environment(cluster: Manifest) -> set[str]:
    head = cluster["headGroupSpec"]["template"]["spec"]["containers"][:1]
    return {variable["name"] for part in head for variable in part.get("env", [])}


def _check_autoscaler(cluster: Manifest) -> Iterator[str]:
    version = cluster.get("autoscalerOptions", {}).get("version")
    is_v2 = bool(cluster.get("enableInTreeAutoscaling")) and version == "v2"
    if "RAY_enable_autoscaler_v2" in _environment(cluster):
        yield "RAY_enable_autoscaler_v2: set autoscalerOptions.version instead"
    for name, group in _all_groups(cluster):
        policy = group["template"]["spec"].get("restartPolicy", "Never")
        if is_v2 and policy != "Never":
            yield f"{name}: restartPolicy {policy}, expected Never with autoscaler v2"
        for key in {"idleTimeoutSeconds", "priority"} & group.keys():
            if not is_v2:
                yield f"{name}: {key} needs autoscaler v2"
        if group.get("suspend") and cluster.get("enableInTreeAutoscaling"):
            yield f"{name}: suspended while autoscaling"


def _check_redis(cluster: Manifest, annotations: Manifest) -> Iterator[str]:
    options = cluster.get("gcsFaultToleranceOptions")
    variables, params = _environment(cluster), cluster["headGroupSpec"].get("rayStartParams", {})
    if "redis-username" in params or "REDIS_USERNAME" in variables:
        yield "redis username: set gcsFaultToleranceOptions.redisUsername instead"
    if options is not None:
        yield from _check_fault_tolerance(options, variables, params, annotations)
    elif "RAY_REDIS_ADDRESS" in variables:
        yield "RAY_REDIS_ADDRESS: needs gcsFaultToleranceOptions"


def _check_fault_tolerance(
    options: Manifest, variables: set[str], params: Manifest, annotations: Manifest
) -> Iterator[str]:
    for name in sorted({"REDIS_PASSWORD", "RAY_REDIS_ADDRESS"} & variables):
        yield f"{name}: set it in gcsFaultToleranceOptions"
    if params.get("redis-password"):
        yield "redis-password: set gcsFaultToleranceOptions.redisPassword instead"
    for name in ("ray.io/ft-enabled", "ray.io/external-storage-namespace"):
        if name in annotations:
            yield f"{name}: conflicts with gcsFaultToleranceOptions"
    if "externalStorageNamespace" in options:
        yield "externalStorageNamespace: two clusters in one destroy each other's state"


def _check_auth(cluster: Manifest) -> Iterator[str]:
    options = cluster.get("authOptions", {})
    if options.get("enableK8sTokenAuth"):
        yield "enableK8sTokenAuth: not for a RayService"
    if options.get("mode") != "token":
        return
    version = cluster.get("rayVersion", "")
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"authOptions: needs rayVersion, found {version!r}"
    elif tuple(map(int, version.split("."))) < _AUTH_SINCE:
        yield f"authOptions: needs Ray 2.52.0 or later, found {version}"


def _check_head(cluster: Manifest) -> Iterator[str]:
    head = cluster["headGroupSpec"]
    if head.get("headService", {}).get("metadata", {}).get("name"):
        yield "headService.metadata.name: must not be set in a RayService"
    ports = {
        port.get("name")
        for container in head["template"]["spec"].get("containers", [])[:1]
        for port in container.get("ports", [])
    }
    if "serve" not in ports:
        yield "head: no port named serve, so no service would be made"
    if head.get("rayStartParams", {}).get("num-cpus") != "0":
        yield "head: expected num-cpus '0', so that nothing of ours runs there"


def _check_network(cluster: Manifest) -> Iterator[str]:
    names = {name for name, _ in _all_groups(cluster)}
    for rule in cluster.get("networkPolicy", {}).get("workerGroups", []):
        if rule["groupName"] not in names:
            yield f"networkPolicy: no group {rule['groupName']}"


def _check_readiness(cluster: Manifest) -> Iterator[str]:
    """A probe of our own asks at least what the operator's asks."""
    for name, group in _all_groups(cluster):
        for container in group["template"]["spec"].get("containers", [])[:1]:
            probe = container.get("readinessProbe")
            command = " ".join(probe.get("exec", {}).get("command", [])) if probe else ""
            paths = ["52365/api/local_raylet_healthz"]
            paths.append("8265/api/gcs_healthz" if name == "head" else "8000/-/healthz")
            missing = [path for path in paths if probe and path not in command]
            if missing:
                yield f"{name}: the readiness probe does not ask {', '.join(missing)}"
