"""Whether the dashboard and the alerts read series that exist."""

from __future__ import annotations

import functools
from pathlib import Path

import ray

from replicas.metrics.catalogue import sample_names
from tests.k8s.chart import Manifest
from tests.k8s.series import all_series, expressions, is_ours, names_in

_OPERATOR = {
    "kuberay_service_condition_ready",
    "kuberay_service_condition_upgrade_in_progress",
}
"""What KubeRay's operator exposes and we use."""
_RAY_SOURCES = ("serve/_private", "dashboard/modules/reporter", "autoscaler/_private")


def check_series(manifests: list[Manifest]) -> list[str]:
    """Return series that nobody has, and expressions that are not PromQL."""
    problems = []
    for expression in expressions(manifests):
        try:
            names_in(expression)
        except ValueError as error:
            return [f"{expression}: {error}"]
    for name in sorted(all_series(manifests)):
        if is_ours(name) and name not in _ours():
            problems.append(f"{name}: not in the catalogue")
        elif name.startswith("ray_") and f'"{name.removeprefix("ray_")}"' not in _ray_source():
            problems.append(f"{name}: Ray {ray.__version__} has no such series")
        elif not is_ours(name) and not name.startswith("ray_") and name not in _OPERATOR:
            problems.append(f"{name}: nobody is known to have it")
    return problems


@functools.cache
def _ours() -> frozenset[str]:
    return frozenset(sample_names())


@functools.cache
def _ray_source() -> str:
    """Return the files of the installed Ray that name its series, as one text."""
    root = Path(ray.__file__).parent
    files = [path for folder in _RAY_SOURCES for path in (root / folder).rglob("*.py")]
    return "\n".join(path.read_text() for path in files)
