"""The configuration that a RayService gives: joined to Ray, and refused with reasons."""

from __future__ import annotations

import pytest

from cluster.errors import ConfigError
from cluster.kuberay import read_config

REDIS = {"redis": {"url": "redis://host:6379"}}


def test_ray_is_joined_without_being_named() -> None:
    assert read_config(REDIS).ray.address == "auto"
    assert read_config({**REDIS, "ray": {"address": "host:1"}}).ray.address == "host:1"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "redis.url: expected the address of a Redis, found none"),
        ({**REDIS, "modle": "x"}, "modle: unknown key; did you mean model?"),
        ({**REDIS, "ray": 3}, "ray: "),
        ({**REDIS, "verifier": {"num_replicas": 0}}, "verifier.num_replicas: "),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(args: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says.replace('?', '.')}"):
        read_config(args)
