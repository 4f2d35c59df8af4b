"""Which Prometheus series the dashboard and the alerts name."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import promql_parser

from tests.k8s.chart import CHART, Manifest, of_kind, rendered

PREFIXES = ("vllm:", "specdec_", "banditserve_")
"""What series of ours begin with; others are Ray's, or of KubeRay's operator."""


def series_used() -> frozenset[str]:
    """Return the names of our series that dashboard and alerts use, as scraped."""
    return frozenset(name for name in all_series(rendered("everything")) if is_ours(name))


def is_ours(name: str) -> bool:
    """Return whether a series is ours by its name."""
    return name.startswith(PREFIXES)


def all_series(manifests: list[Manifest]) -> frozenset[str]:
    """Return every series that the dashboard and the alerts among these objects use.

    Raises:
        ValueError: If an expression is not PromQL.
    """
    return frozenset(name for expr in expressions(manifests) for name in names_in(expr))


def expressions(manifests: list[Manifest]) -> Iterator[str]:
    """Yield every PromQL expression among these objects, dashboard variables filled in."""
    for rule in of_kind(manifests, "PrometheusRule"):
        for group in rule["spec"]["groups"]:
            yield from (item["expr"] for item in group["rules"])
    for config in of_kind(manifests, "ConfigMap"):
        for name, text in config["data"].items():
            if name.endswith(".json"):
                yield from _of_dashboard(json.loads(text))


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    body: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
    return body


def _of_dashboard(body: dict[str, Any]) -> Iterator[str]:
    for panel in body["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$__rate_interval", "5m")
    for variable in body["templating"]["list"]:
        query = variable["query"]
        if isinstance(query, dict):  # label_values(SERIES, LABEL)
            yield query["query"].removeprefix("label_values(").partition(",")[0]


@functools.cache
def names_in(expression: str) -> frozenset[str]:
    """Return the series that an expression reads.

    Raises:
        ValueError: If it is not PromQL.

    >>> sorted(names_in("sum(rate(a_total{x='1'}[5m])) / b"))
    ['a_total', 'b']
    """
    found: set[str] = set()

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector) and node.name:
            found.add(node.name)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return frozenset(found)
