"""How many Verifiers there should be: enough, no more, and without swinging."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from ray.serve.autoscaling_policy import _apply_delay_logic
from ray.serve.config import AutoscalingConfig

from cluster.config import SystemConfig
from cluster.resources import num_cpus_needed
from cluster.serve_app import engine_config
from replicas.autoscaling import (
    BLOCKED_TOKENS,
    GOODPUT,
    MAX_GROWTH,
    PROMPT_RATE,
    QUEUED_TOKENS,
    REPLY_TOKENS,
    WorkPolicy,
)
from replicas.config import VerifierAutoscaling, VerifierConfig
from replicas.scaling import autoscaling_config

TTFT_S, REPLY_S, TOLERANCE = 2.0, 30.0, 0.1
POLICY = WorkPolicy(TTFT_S, REPLY_S, TOLERANCE)
LOADS = st.floats(0, 1e6)
RATES = st.floats(1e-3, 1e5)


@dataclass(frozen=True)
class Context:
    target_num_replicas: int
    aggregated_metrics: Mapping[str, Mapping[Any, float]] | None
    current_num_replicas: int = 8


def report(
    queued: float = 0.0,
    replies: float = 0.0,
    goodput: float = 100.0,
    prompt_rate: float = 1000.0,
    blocked: float = 0.0,
) -> dict[str, float]:
    return {
        QUEUED_TOKENS: queued,
        BLOCKED_TOKENS: blocked,
        REPLY_TOKENS: replies,
        PROMPT_RATE: prompt_rate,
        GOODPUT: goodput,
    }


def context(reports: list[dict[str, float]], target: int, current: int = 8) -> Context:
    names = report()
    return Context(
        target, {name: {i: one[name] for i, one in enumerate(reports)} for name in names}, current
    )


def wanted(reports: list[dict[str, float]], target: int, current: int = 8) -> float:
    number, state = POLICY(context(reports, target, current))
    assert state == {}
    return number


@pytest.mark.parametrize(
    ("one", "number"),
    [
        (report(), 1),
        (report(replies=100 * 30), 1),
        (report(replies=100 * 30 * 1.05), 1),
        (report(replies=100 * 30 * 1.2), 2),
        (report(replies=100 * 30 * 3.5), 4),
        (report(queued=1000 * 2 * 1.2), 2),
        (report(queued=1000, blocked=200), 2),
        (report(queued=1000, blocked=50), 1),
    ],
)
def test_verifiers_follow_the_work(one: dict[str, float], number: int) -> None:
    assert wanted([one], 1) == number


def test_the_same_tokens_are_more_work_when_fewer_drafts_are_accepted() -> None:
    busy = report(replies=2500, goodput=100)
    assert wanted([busy], 1) == 1
    assert wanted([{**busy, GOODPUT: 50.0}], 1) == 2


def test_one_that_has_reported_nothing_has_no_work() -> None:
    assert wanted([report(replies=6000)], 2) == 2
    assert wanted([report(replies=100)], 2) == 1


@pytest.mark.parametrize("metrics", [None, {}, {"other": {"a": 1.0}}, {GOODPUT: {}}])
def test_without_any_report_nothing_changes(metrics: Any) -> None:
    assert POLICY(Context(3, metrics)) == (3.0, {})


def test_they_at_most_double_at_a_time() -> None:
    flood = [report(replies=1e9)]
    assert wanted(flood, 1, current=1) == MAX_GROWTH
    assert wanted(flood, 2, current=1) == 2
    assert wanted(flood, 2, current=2) == 2 * MAX_GROWTH


@given(LOADS, LOADS, LOADS, RATES, RATES, st.integers(1, 8), st.floats(1, 10))
def test_more_work_never_asks_for_fewer(
    queued: float,
    replies: float,
    blocked: float,
    goodput: float,
    prompt_rate: float,
    target: int,
    factor: float,
) -> None:
    less = report(queued, replies, goodput, prompt_rate, blocked)
    for name in (QUEUED_TOKENS, REPLY_TOKENS, BLOCKED_TOKENS):
        assert wanted([{**less, name: less[name] * factor}], target) >= wanted([less], target)
    for name in (GOODPUT, PROMPT_RATE):
        assert wanted([{**less, name: less[name] / factor}], target) >= wanted([less], target)


@given(LOADS, RATES, st.integers(1, 20))
def test_never_zero_and_steady_where_it_arrives(replies: float, goodput: float, num: int) -> None:
    number = wanted([report(replies=replies, goodput=goodput)], num)
    assert number >= 1
    assert wanted([report(replies=replies, goodput=goodput)], int(number), int(number)) >= number


# How much a Verifier yields a second with so many sequences: concave, as batches are.
CURVES: dict[str, Callable[[float], float]] = {
    "flat": lambda n: 25.0,
    "batching": lambda n: 25.0 * n / (1 + 0.1 * n),
    "linear": lambda n: 25.0 * n,
    "root": lambda n: 25.0 * math.sqrt(n),
}


class Fleet:
    """Verifiers under a load in sequences, scaled by the policy with Serve's own delays."""

    def __init__(self, curve: Callable[[float], float], start_s: int = 20) -> None:
        self.curve = curve
        self.start_s = start_s
        self.target = 1
        self.ready_at = [0]
        self.changes: list[int] = []
        self.state: dict[str, Any] = {}
        self.config = AutoscalingConfig(
            min_replicas=1, max_replicas=12, upscale_delay_s=10, downscale_delay_s=60
        )

    def tick(self, now: int, sequences: float) -> None:
        running = sum(at <= now for at in self.ready_at)
        each = sequences / running
        one = report(replies=200 * each, goodput=self.curve(max(each, 1.0)))
        number = math.ceil(wanted([one] * running, self.target, running))
        decided, self.state = _apply_delay_logic(
            number, self.target, self.config, self.state, _now=float(now)
        )
        decided = max(1, min(12, decided))
        if decided != self.target:
            self.changes.append(decided - self.target)
        self.ready_at = sorted(self.ready_at)[:decided]
        self.ready_at += [now + self.start_s] * (decided - len(self.ready_at))
        self.target = decided

    @property
    def num_turns(self) -> int:
        signs = [change > 0 for change in self.changes]
        return sum(a != b for a, b in pairwise(signs))


@pytest.mark.parametrize("curve", CURVES)
@settings(max_examples=20)
@given(st.floats(0, 400))
def test_a_steady_load_is_followed_in_one_direction(curve: str, sequences: float) -> None:
    fleet = Fleet(CURVES[curve])
    for now in range(0, 1200, 2):
        fleet.tick(now, sequences)
    assert fleet.num_turns == 0
    settled = len(fleet.changes)
    for now in range(1200, 2400, 2):
        fleet.tick(now, sequences)
    assert len(fleet.changes) == settled


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0, 300), st.integers(5, 400)), min_size=1, max_size=8),
    st.sampled_from(sorted(CURVES)),
)
def test_the_direction_turns_no_oftener_than_the_load(
    trace: list[tuple[float, int]], curve: str
) -> None:
    fleet = Fleet(CURVES[curve])
    now = 0
    for sequences, length in trace:
        for _ in range(0, length, 2):
            fleet.tick(now, sequences)
            now += 2
    # starting from nothing; while new ones start, the work still lies with the old
    levels = [0.0, *(sequences for sequences, _ in trace)]
    assert fleet.num_turns <= len(levels) - 1


def test_noise_on_a_load_moves_nothing() -> None:
    fleet = Fleet(CURVES["batching"])
    for now in range(0, 600, 2):
        fleet.tick(now, 60)
    settled = len(fleet.changes)
    for now in range(600, 3600, 2):
        fleet.tick(now, 60 * (1 + 0.08 * (-1) ** (now // 2)))
    assert len(fleet.changes) == settled


def test_a_burst_is_met_and_left_again() -> None:
    fleet = Fleet(CURVES["batching"])
    for now in range(0, 300, 2):
        fleet.tick(now, 4)
    assert fleet.target == 1
    for now in range(300, 900, 2):
        fleet.tick(now, 200)
    most = fleet.target
    assert most >= 4
    for now in range(900, 1500, 2):
        fleet.tick(now, 4)
    assert fleet.target == 1
    assert fleet.num_turns == 1


def test_serve_is_told() -> None:
    found = autoscaling_config(VerifierAutoscaling(min_replicas=2, max_replicas=5))
    assert (found.min_replicas, found.max_replicas) == (2, 5)
    policy = found.policy.get_policy()(**found.policy.policy_kwargs)
    assert policy(context([report(replies=100 * 30 * 2.5)], 2)) == (3.0, {})


def test_none_at_all_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"min_replicas must be at least 1, because .* got 0"):
        VerifierAutoscaling(min_replicas=0)
    with pytest.raises(ValidationError, match=r"max_replicas must be at least min_replicas \(3\)"):
        VerifierAutoscaling(min_replicas=3, max_replicas=2)


def test_room_is_kept_for_as_many_as_there_may_be() -> None:
    grown = VerifierConfig(autoscaling=VerifierAutoscaling(max_replicas=3))
    fixed = VerifierConfig(num_replicas=3)
    assert grown.max_verifiers == 3
    assert num_cpus_needed(SystemConfig(verifier=grown)) == pytest.approx(
        num_cpus_needed(SystemConfig(verifier=fixed))
    )


def test_a_machine_is_shared_out_among_as_many_as_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    scaled = VerifierConfig(autoscaling=VerifierAutoscaling(max_replicas=3))
    assert engine_config(SystemConfig(verifier=scaled)).num_threads == 4
    assert engine_config(SystemConfig()).num_threads == 0
