"""The chart, rendered by the real Helm, and where to find things in what it renders."""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "k8s" / "chart"
VALUES = ROOT / "k8s" / "values"
PROFILES = tuple(sorted(path.stem for path in VALUES.glob("*.yaml")))
RELEASE = "bs"
NAMESPACE = "serving"

EVERYTHING = (
    *("monitoring.podMonitors.enabled=true", "monitoring.alerts.enabled=true"),
    *("monitoring.dashboard.enabled=true", "priorityClass.create=true"),
    *("exposure.type=gateway", "exposure.gateway.name=edge"),
    *("redis.policy.tls.enabled=true", "redis.policy.tls.secretName=redis-tls"),
    *("redis.gcs.tls.enabled=true", "redis.gcs.tls.secretName=redis-tls"),
    *("auth.apiKeys.secretName=api-keys", "modelCache.hubToken.secretName=hub"),
    "serve.haProxy=true",
)
"""Settings under which the chart makes every kind of object that it knows."""

Manifest = dict[str, Any]


def helm_binary() -> str:
    """Return Helm: from PATH, else the one that ``scripts/get_helm.py`` put beside Python.

    Raises:
        FileNotFoundError: If there is none.
    """
    beside = Path(sys.executable).parent / "helm"
    found = shutil.which("helm") or (str(beside) if beside.exists() else None)
    if found is None:
        raise FileNotFoundError("no helm: expected it on PATH, or from `make test-k8s`")
    return found


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm and return what it said, whether it failed or not."""
    return subprocess.run(
        [helm_binary(), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def template(values: tuple[Path, ...] = (), sets: tuple[str, ...] = ()) -> str:
    """Return what the chart renders.

    Raises:
        ValueError: If Helm refuses; holds what it said.
    """
    files = [part for path in values for part in ("--values", str(path))]
    settings = [part for pair in sets for part in ("--set", pair)]
    where = ("--namespace", NAMESPACE, "--kube-version", "1.37.0")
    done = helm("template", RELEASE, str(CHART), *where, *files, *settings)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout


@functools.cache
def _rendered(profile: str) -> tuple[Manifest, ...]:
    text = (
        template(sets=EVERYTHING)
        if profile == "everything"
        else template((VALUES / f"{profile}.yaml",))
    )
    return tuple(body for body in yaml.load_all(text, Loader=yaml.CSafeLoader) if body)


CASES = (*PROFILES, "everything")
"""What is rendered and checked: each file of values, and the chart with all that it can make."""


def rendered(case: str) -> list[Manifest]:
    """Return a copy of a case's objects; rendered once a process."""
    return copy.deepcopy(list(_rendered(case)))


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """Return the objects of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def ray_service(manifests: list[Manifest]) -> Manifest:
    """Return the RayService; there is one."""
    (found,) = of_kind(manifests, "RayService")
    return found


def cluster_of(manifests: list[Manifest]) -> Manifest:
    """Return ``rayClusterConfig``."""
    cluster: Manifest = ray_service(manifests)["spec"]["rayClusterConfig"]
    return cluster


def serve_config(manifests: list[Manifest]) -> Manifest:
    """Return ``serveConfigV2``, parsed."""
    config: Manifest = yaml.safe_load(ray_service(manifests)["spec"]["serveConfigV2"])
    return config


def set_serve_config(manifests: list[Manifest], config: Manifest) -> None:
    """Put another ``serveConfigV2`` in its place."""
    ray_service(manifests)["spec"]["serveConfigV2"] = yaml.safe_dump(config)


def worker_groups(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the worker groups by name."""
    return {group["groupName"]: group for group in cluster_of(manifests)["workerGroupSpecs"]}


def pod_templates(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield where each template of a pod is, and the template."""
    for manifest in manifests:
        name = f"{manifest['kind']}/{manifest['metadata']['name']}"
        if manifest["kind"] == "RayService":
            cluster = manifest["spec"]["rayClusterConfig"]
            yield f"{name} head", cluster["headGroupSpec"]["template"]
            for group in cluster["workerGroupSpecs"]:
                yield f"{name} group {group['groupName']}", group["template"]
        elif manifest["kind"] == "StatefulSet":
            yield name, manifest["spec"]["template"]
