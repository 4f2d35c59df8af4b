"""Whether what objects name is there: labels, secrets, volumes, ports; and how pods must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.k8s.chart import Manifest, of_kind, pod_templates, ray_service, serve_config

MADE_ELSEWHERE = {
    *("banditserve-redis", "banditserve-redis-ca", "banditserve-api-keys", "banditserve-hub"),
    *("redis-tls", "api-keys", "hub"),
}
"""Secrets that exist before the chart is installed."""


def check_references(manifests: list[Manifest]) -> list[str]:
    """Return what names something that is not there, and pods that are not as they must be."""
    problems = []
    for name, template in pod_templates(manifests):
        problems += [f"{name}: {problem}" for problem in _check_pod(template, manifests)]
    for manifest in manifests:
        name = f"{manifest['kind']}/{manifest['metadata']['name']}"
        for selector in _selectors(manifest):
            if not any(_matches(selector, pod) for _, pod in pod_templates(manifests)):
                problems.append(f"{name}: no pod has labels {selector}")
    problems += _check_ports(manifests)
    return [*problems, *_check_backends(manifests), *_check_drain(manifests)]


def _selectors(manifest: Manifest) -> Iterator[Manifest]:
    """Yield what an object selects pods of this chart by."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "Service":
        yield {"matchLabels": spec["selector"]}
    elif manifest["kind"] in ("PodDisruptionBudget", "PodMonitor", "StatefulSet"):
        yield spec["selector"]
    elif manifest["kind"] == "NetworkPolicy":
        yield spec["podSelector"]
        peers = [
            peer
            for direction, key in (("ingress", "from"), ("egress", "to"))
            for rule in spec.get(direction, [])
            for peer in rule.get(key, [])
        ]
        yield from (peer["podSelector"] for peer in peers if "podSelector" in peer)


def _matches(selector: Manifest, template: Manifest) -> bool:
    labels = template["metadata"].get("labels", {})
    wanted = selector.get("matchLabels", {})
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(
        (labels.get(rule["key"]) in rule.get("values", [])) == (rule["operator"] == "In")
        for rule in selector.get("matchExpressions", [])
        if rule["operator"] in ("In", "NotIn")
    )


def _check_pod(template: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    spec = template["spec"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    claims = {claim["metadata"]["name"] for claim in _claim_templates(manifests)}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes.keys() | claims:
                yield f"{container['name']} mounts {mount['name']}, which is no volume"
        for variable in container.get("env", []):
            secret = variable.get("valueFrom", {}).get("secretKeyRef", {}).get("name")
            if secret and secret not in _names(manifests, "Secret") | MADE_ELSEWHERE:
                yield f"{variable['name']} comes from secret {secret}, which nobody makes"
            if "PASSWORD" in variable["name"] and "value" in variable:
                yield f"{variable['name']} is written out"
        yield from _check_security(container)
    if spec.get("securityContext", {}).get("runAsNonRoot") is not True:
        yield "may run as root"
    yield from _check_volumes(volumes, manifests)


def _check_volumes(volumes: dict[str, Manifest], manifests: list[Manifest]) -> Iterator[str]:
    sources = (
        ("secret", "secretName", "Secret", MADE_ELSEWHERE),
        ("configMap", "name", "ConfigMap", set[str]()),
        ("persistentVolumeClaim", "claimName", "PersistentVolumeClaim", set[str]()),
    )
    for volume in volumes.values():
        for source, key, kind, elsewhere in sources:
            name = volume.get(source, {}).get(key)
            if name and name not in _names(manifests, kind) | elsewhere:
                yield f"volume {volume['name']} is {kind} {name}, which nobody makes"


def _check_security(container: Manifest) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{container['name']} may gain privileges"
    if "ALL" not in context.get("capabilities", {}).get("drop", []):
        yield f"{container['name']} keeps capabilities"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield f"{container['name']} has no limit of memory"


def _names(manifests: list[Manifest], kind: str) -> set[str]:
    return {manifest["metadata"]["name"] for manifest in of_kind(manifests, kind)}


def _claim_templates(manifests: list[Manifest]) -> Iterator[Manifest]:
    for manifest in of_kind(manifests, "StatefulSet"):
        yield from manifest["spec"].get("volumeClaimTemplates", [])


def _check_ports(manifests: list[Manifest]) -> Iterator[str]:
    """A port that is named has a pod among those selected that has it."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        if manifest["kind"] == "PodMonitor":
            names = [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]]
        elif manifest["kind"] == "Service":
            names = [port["targetPort"] for port in spec["ports"]]
        else:
            continue
        (selector,) = _selectors(manifest)
        ports = {
            port["name"]
            for _, template in pod_templates(manifests)
            if _matches(selector, template)
            for port in template["spec"]["containers"][0]["ports"]
        }
        for name in names:
            if name not in ports:
                yield f"{manifest['kind']}/{manifest['metadata']['name']}: no pod has port {name}"


def _check_backends(manifests: list[Manifest]) -> Iterator[str]:
    """Requests go to the service that the operator makes, which is named after the RayService."""
    wanted = (f"{ray_service(manifests)['metadata']['name']}-serve-svc", 8000)
    found: list[tuple[str, Any]] = []
    for route in of_kind(manifests, "HTTPRoute"):
        for rule in route["spec"]["rules"]:
            found += [(backend["name"], backend["port"]) for backend in rule["backendRefs"]]
    for ingress in of_kind(manifests, "Ingress"):
        for rule in ingress["spec"]["rules"]:
            services = [path["backend"]["service"] for path in rule["http"]["paths"]]
            found += [(service["name"], service["port"]["number"]) for service in services]
    for backend in found:
        if backend != wanted:
            yield f"requests go to {backend}, expected {wanted}"


def _check_drain(manifests: list[Manifest]) -> Iterator[str]:
    """A pod is killed after its drain, and a drain is as long as replicas may take."""
    seconds = serve_config(manifests)["applications"][0]["args"]["drain_timeout_s"]
    for name, template in pod_templates(manifests):
        if " group " not in name:
            continue
        hook = template["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {})
        command = " ".join(hook.get("exec", {}).get("command", []))
        if f"cluster.drain --seconds {seconds} " not in command:
            yield f"{name}: preStop does not drain for {seconds} s"
        if template["spec"].get("terminationGracePeriodSeconds", 30) <= seconds:
            yield f"{name}: is killed before {seconds} s of draining are over"
