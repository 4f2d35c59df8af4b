"""How many hosts a drafter gets, and where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from cluster.config import SystemConfig
from cluster.resources import num_cpus_needed
from drafters.autoscaling import LOAD, LoadMeter, LoadPolicy
from drafters.config import DrafterAutoscaling, DrafterConfig
from drafters.host import host_options


@dataclass(frozen=True)
class Context:
    target_num_replicas: int
    aggregated_metrics: Mapping[str, Mapping[Any, float]] | None


@pytest.mark.parametrize(
    ("loads", "hosts"),
    [
        ({"a": 0.5}, 1.0),
        ({"a": 1.0}, 2.0),
        ({"a": 0.9, "b": 0.7}, 3.2),
        ({"a": 0.1, "b": 0.1}, 0.4),
        ({"a": 0.8, "b": 0.8, "c": 0.8}, 4.8),
    ],
)
def test_hosts_follow_the_load(loads: dict[str, float], hosts: float) -> None:
    wanted, state = LoadPolicy(0.5)(Context(len(loads), {LOAD: loads}))
    assert wanted == pytest.approx(hosts)
    assert state == {}


@pytest.mark.parametrize("metrics", [None, {}, {LOAD: {}}, {"other": {"a": 3.0}}])
def test_without_a_load_nothing_changes(metrics: Mapping[str, Mapping[Any, float]] | None) -> None:
    assert LoadPolicy(0.5)(Context(3, metrics)) == (3.0, {})


def test_a_host_that_has_not_reported_counts_as_the_others() -> None:
    assert LoadPolicy(0.5)(Context(2, {LOAD: {"a": 1.0}}))[0] == pytest.approx(4.0)


def worker(**changes: Any) -> dict[str, Any]:
    return {"incarnation": "1", "num_sessions": 0, "busy_ms": 0.0, "num_busy": 0, **changes}


def test_the_load_is_the_share_of_time_or_of_sessions() -> None:
    meter = LoadMeter(max_sessions=100)
    assert meter.load(worker(busy_ms=500.0), 0.0) == 0.0
    assert meter.load(worker(busy_ms=900.0), 2.0) == pytest.approx(0.2)
    assert meter.load(worker(busy_ms=900.0, num_sessions=70), 3.0) == pytest.approx(0.7)
    assert meter.load(worker(busy_ms=9900.0), 4.0) == 1.0
    assert meter.load(worker(busy_ms=9900.0), 4.0) == 0.0


@pytest.mark.parametrize("counter", ["num_busy", "num_refused_calls"])
def test_a_worker_that_refuses_has_all_it_can_do(counter: str) -> None:
    meter = LoadMeter(max_sessions=100)
    meter.load(worker(), 0.0)
    assert meter.load(worker(**{counter: 1}), 1.0) == 1.0
    assert meter.load(worker(**{counter: 1}), 2.0) == 0.0


def test_a_restarted_worker_starts_anew() -> None:
    meter = LoadMeter(max_sessions=100)
    meter.load(worker(busy_ms=900.0), 0.0)
    assert meter.load(worker(busy_ms=10.0, incarnation="2"), 1.0) == 0.0


def test_a_silent_worker_is_not_an_idle_one() -> None:
    meter = LoadMeter(max_sessions=100)
    meter.load(worker(busy_ms=0.0), 0.0)
    assert meter.load({}, 1.0) is None
    assert meter.load(worker(busy_ms=1800.0), 2.0) == pytest.approx(0.9)


@pytest.mark.parametrize("num_hosts", range(1, 10))
@pytest.mark.parametrize("target", [0.1, 0.3, 0.7])
def test_hosts_with_the_load_they_should_have_are_enough(num_hosts: int, target: float) -> None:
    loads = {str(host): target for host in range(num_hosts)}
    wanted, _ = LoadPolicy(target)(Context(num_hosts, {LOAD: loads}))
    assert math.ceil(wanted) == num_hosts


def test_hosts_and_workers_go_where_the_labels_say() -> None:
    config = DrafterConfig(num_gpus=0.5, num_cpus=2, label_selector={"role": "draft"})
    options = host_options(config)
    assert options["placement_group_bundles"] == [{"CPU": 0.05}, {"CPU": 2.0, "GPU": 0.5}]
    assert options["placement_group_bundle_label_selector"] == [{"role": "draft"}] * 2
    assert options["placement_group_strategy"] == "STRICT_PACK"
    assert options["num_replicas"] == 1
    assert "placement_group_bundle_label_selector" not in host_options(DrafterConfig())


def test_an_autoscaled_drafter_starts_small() -> None:
    autoscaling = DrafterAutoscaling(min_replicas=2, max_replicas=5, target_load=0.7)
    config = DrafterConfig(autoscaling=autoscaling)
    options = host_options(config)
    assert "num_replicas" not in options
    found = options["autoscaling_config"]
    assert (found.min_replicas, found.max_replicas, found.initial_replicas) == (2, 5, None)
    policy = found.policy.get_policy()(**found.policy.policy_kwargs)
    assert policy(Context(1, {LOAD: {"a": 0.7}}))[0] == pytest.approx(1.0)
    assert config.max_workers == 5


def test_an_autoscaled_drafter_is_given_room_to_grow() -> None:
    def needed(drafter: DrafterConfig) -> float:
        return num_cpus_needed(SystemConfig(drafters={"pld": drafter}))

    grown = needed(DrafterConfig(autoscaling=DrafterAutoscaling(max_replicas=3)))
    assert grown == pytest.approx(needed(DrafterConfig(num_replicas=3)))


def test_bounds_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"max_replicas must be at least min_replicas \(3\)"):
        DrafterAutoscaling(min_replicas=3, max_replicas=2)
