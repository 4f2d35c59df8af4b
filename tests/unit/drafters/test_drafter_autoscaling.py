"""How many hosts a drafter gets, and where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster.config import SystemConfig
from cluster.resources import num_cpus_needed
from drafters.autoscaling import LOAD, QUEUE_MS, USEFUL_SHARE, LoadMeter, LoadPolicy
from drafters.config import DrafterAutoscaling, DrafterConfig
from drafters.host import host_options

POLICY = LoadPolicy(target_load=0.5, target_queue_ms=10.0, min_useful_share=0.05)


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
    wanted, state = POLICY(Context(len(loads), {LOAD: loads}))
    assert wanted == pytest.approx(hosts)
    assert state == {}


@pytest.mark.parametrize("metrics", [None, {}, {LOAD: {}}, {"other": {"a": 3.0}}])
def test_without_a_load_nothing_changes(metrics: Mapping[str, Mapping[Any, float]] | None) -> None:
    assert POLICY(Context(3, metrics)) == (3.0, {})


def test_a_host_that_has_not_reported_has_nothing_to_do() -> None:
    assert POLICY(Context(2, {LOAD: {"a": 1.0}}))[0] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("queue_ms", "hosts"), [(0.0, 0.4), (5.0, 0.5), (15.0, 1.5), (20.0, 2.0), (9e9, 2.0)]
)
def test_hosts_where_calls_wait_are_worth_more(queue_ms: float, hosts: float) -> None:
    metrics = {LOAD: {"a": 0.2, "b": 0.1}, QUEUE_MS: {"a": queue_ms}}
    assert POLICY(Context(2, metrics))[0] == pytest.approx(hosts + 0.2)


@pytest.mark.parametrize(("shares", "hosts"), [((0.04,), 0.0), ((0.0, 0.11), 2.0), ((), 2.0)])
def test_a_drafter_of_no_use_is_worth_no_host(shares: tuple[float, ...], hosts: float) -> None:
    metrics = {LOAD: {"a": 1.0}, USEFUL_SHARE: dict(zip("ab", shares, strict=False))}
    assert POLICY(Context(1, metrics))[0] == pytest.approx(hosts)


@given(st.floats(0, 1), st.floats(0, 1000), st.floats(1, 5))
def test_more_load_never_asks_for_fewer(load: float, queue_ms: float, factor: float) -> None:
    less = POLICY(Context(1, {LOAD: {"a": load}, QUEUE_MS: {"a": queue_ms}}))[0]
    assert POLICY(Context(1, {LOAD: {"a": load * factor}, QUEUE_MS: {"a": queue_ms}}))[0] >= less
    assert POLICY(Context(1, {LOAD: {"a": load}, QUEUE_MS: {"a": queue_ms * factor}}))[0] >= less


def worker(**changes: Any) -> dict[str, Any]:
    return {"incarnation": "1", "num_sessions": 0, "busy_ms": 0.0, "num_busy": 0, **changes}


def load(meter: LoadMeter, status: dict[str, Any], now: float) -> float | None:
    return meter.measure(status, now).get(LOAD)


def test_the_load_is_the_share_of_time_or_of_sessions() -> None:
    meter = LoadMeter(max_sessions=100)
    assert load(meter, worker(busy_ms=500.0), 0.0) == 0.0
    assert load(meter, worker(busy_ms=900.0), 2.0) == pytest.approx(0.2)
    assert load(meter, worker(busy_ms=900.0, num_sessions=70), 3.0) == pytest.approx(0.7)
    assert load(meter, worker(busy_ms=9900.0), 4.0) == 1.0
    assert load(meter, worker(busy_ms=9900.0), 4.0) == 0.0


@pytest.mark.parametrize("counter", ["num_busy", "num_refused_calls"])
def test_a_worker_that_refuses_has_all_it_can_do(counter: str) -> None:
    meter = LoadMeter(max_sessions=100)
    load(meter, worker(), 0.0)
    assert load(meter, worker(**{counter: 1}), 1.0) == 1.0
    assert load(meter, worker(**{counter: 1}), 2.0) == 0.0


def test_a_restarted_worker_starts_anew() -> None:
    meter = LoadMeter(max_sessions=100)
    load(meter, worker(busy_ms=900.0), 0.0)
    assert load(meter, worker(busy_ms=10.0, incarnation="2"), 1.0) == 0.0


def test_a_silent_worker_is_not_an_idle_one() -> None:
    meter = LoadMeter(max_sessions=100)
    load(meter, worker(busy_ms=0.0), 0.0)
    assert load(meter, {}, 1.0) is None
    assert load(meter, worker(busy_ms=1800.0), 2.0) == pytest.approx(0.9)


def test_calls_wait_so_long_on_average() -> None:
    meter = LoadMeter(max_sessions=100)
    meter.measure(worker(num_calls=10, queue_ms=50.0), 0.0)
    assert meter.measure(worker(num_calls=14, queue_ms=62.0), 1.0)[QUEUE_MS] == pytest.approx(3.0)
    assert meter.measure(worker(num_calls=14, queue_ms=62.0), 2.0)[QUEUE_MS] == 0.0


def test_use_is_told_once_enough_drafts_were_judged_and_follows_a_change() -> None:
    meter = LoadMeter(max_sessions=100)
    meter.measure(worker(), 0.0)
    assert USEFUL_SHARE not in meter.measure(worker(num_judged=40, num_useful=20), 1.0)
    told = meter.measure(worker(num_judged=80, num_useful=40), 2.0)
    assert told[USEFUL_SHARE] == pytest.approx(0.5)
    for number in range(12):
        status = worker(num_judged=80 + 600 * (number + 1), num_useful=40)
        told = meter.measure(status, 3.0 + number)
    assert told[USEFUL_SHARE] < 0.01


@pytest.mark.parametrize("num_hosts", range(1, 10))
@pytest.mark.parametrize("target", [0.1, 0.3, 0.7])
def test_hosts_with_the_load_they_should_have_are_enough(num_hosts: int, target: float) -> None:
    loads = {str(host): target for host in range(num_hosts)}
    wanted, _ = LoadPolicy(target, 10.0, 0.05)(Context(num_hosts, {LOAD: loads}))
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
    assert (found.min_replicas, found.max_replicas, found.initial_replicas) == (2, 5, 2)
    policy = found.policy.get_policy()(**found.policy.policy_kwargs)
    assert policy(Context(1, {LOAD: {"a": 0.7}}))[0] == pytest.approx(1.0)
    assert config.max_workers == 5


def test_an_autoscaled_drafter_is_given_room_to_grow() -> None:
    def needed(drafter: DrafterConfig) -> float:
        return num_cpus_needed(SystemConfig(drafters={"pld": drafter}))

    grown = needed(DrafterConfig(autoscaling=DrafterAutoscaling(max_replicas=3)))
    assert grown == pytest.approx(needed(DrafterConfig(num_replicas=3)))


def test_a_drafter_that_may_have_none_starts_with_one() -> None:
    autoscaling = DrafterAutoscaling(min_replicas=0)
    found = host_options(DrafterConfig(autoscaling=autoscaling))["autoscaling_config"]
    assert (found.min_replicas, found.initial_replicas) == (0, 1)


def test_bounds_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"max_replicas must be at least min_replicas \(3\)"):
        DrafterAutoscaling(min_replicas=3, max_replicas=2)
