"""Planted faults: one change of rendered manifests each, and how to find one's way in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.k8s.chart import (
    Manifest,
    cluster_of,
    of_kind,
    serve_config,
    set_serve_config,
    worker_groups,
)

Change = Callable[[list[Manifest]], object]


@dataclass(frozen=True)
class Fault:
    """A fault to plant.

    Attributes:
        what: In a word or two.
        change: Plants it.
        found: What the check says of it, a part.
    """

    what: str
    change: Change
    found: str

    def __str__(self) -> str:
        return self.what


def head(manifests: list[Manifest]) -> Manifest:
    """Return the head's group."""
    group: Manifest = cluster_of(manifests)["headGroupSpec"]
    return group


def pod_of(group: Manifest) -> Manifest:
    """Return the spec of a group's pods."""
    spec: Manifest = group["template"]["spec"]
    return spec


def group(manifests: list[Manifest], name: str) -> Manifest:
    """Return a worker group."""
    return worker_groups(manifests)[name]


def container(manifests: list[Manifest], name: str) -> Manifest:
    """Return the container of a worker group's pods."""
    first: Manifest = pod_of(group(manifests, name))["containers"][0]
    return first


def spec_of(manifests: list[Manifest], kind: str) -> Manifest:
    """Return the spec of the first object of a kind."""
    spec: Manifest = of_kind(manifests, kind)[0]["spec"]
    return spec


def in_app(change: Callable[[Manifest], object]) -> Change:
    """Return a fault in the application of ``serveConfigV2``."""
    return in_serve_config(lambda config: change(config["applications"][0]))


def in_args(change: Callable[[Manifest], object]) -> Change:
    """Return a fault in our configuration."""
    return in_app(lambda app: change(app["args"]))


def in_serve_config(change: Callable[[Manifest], object]) -> Change:
    """Return a fault in ``serveConfigV2``."""

    def planted(manifests: list[Manifest]) -> None:
        config = serve_config(manifests)
        change(config)
        set_serve_config(manifests, config)

    return planted


def drop(kind: str) -> Change:
    """Return the fault that the objects of a kind are missing."""

    def planted(manifests: list[Manifest]) -> None:
        manifests[:] = [body for body in manifests if body["kind"] != kind]

    return planted
