"""Arrivals: a Poisson process of the rate that was asked for, the same for the same seed."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.loadtest.arrivals import Arrival, draw_arrivals, poisson_times
from cluster.loadtest.prompts import prompt_pools
from cluster.loadtest.scenario import Phase, Scenario


def phase(rate: float, end_rate: float | None = None, duration_s: float = 1000.0) -> Phase:
    return Phase(name="p", duration_s=duration_s, rate=rate, end_rate=end_rate, mix={"chat": 1})


def draw(scenario: Scenario, seed: int) -> list[Arrival]:
    return draw_arrivals(scenario, prompt_pools(scenario, Path("none")), seed)


def test_gaps_between_arrivals_are_exponential() -> None:
    times = list(poisson_times(phase(5.0), random.Random(1)))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.05)
    # Of an exponential law the deviation is the mean, and the share above the mean is 1/e.
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.05)
    assert sum(gap > 0.2 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)


def test_a_rate_that_changes_is_followed() -> None:
    times = list(poisson_times(phase(1.0, 9.0), random.Random(2)))
    assert len(times) == pytest.approx(5000, rel=0.05)
    first = sum(at_s < 500 for at_s in times)
    assert first == pytest.approx(1500, rel=0.08)  # from 1 to 5 a second
    assert all(0 <= at_s < 1000 for at_s in times)
    assert times == sorted(times)


def test_no_rate_means_no_arrivals() -> None:
    assert list(poisson_times(phase(0.0), random.Random(3))) == []


def test_the_seed_decides_everything_and_phases_follow_each_other() -> None:
    phases = (
        Phase(name="one", duration_s=50, rate=2, mix={"chat": 3, "code": 1}),
        Phase(name="two", duration_s=50, rate=1, mix={"rag": 1}),
    )
    scenario = Scenario(name="s", phases=phases)
    arrivals = draw(scenario, 7)
    assert arrivals == draw(scenario, 7)
    assert arrivals != draw(scenario, 8)
    assert [arrival.index for arrival in arrivals] == list(range(len(arrivals)))
    for arrival in arrivals:
        assert (arrival.at_s < 50) == (arrival.phase == "one") == (arrival.workload != "rag")
        assert arrival.prompt.workload == arrival.workload
    chat = sum(arrival.workload == "chat" for arrival in arrivals)
    code = sum(arrival.workload == "code" for arrival in arrivals)
    assert chat > 1.5 * code


def test_every_prompt_comes_once_before_any_comes_again() -> None:
    scenario = Scenario(name="s", phases=(phase(1.0, duration_s=200),))
    num_prompts = len(prompt_pools(scenario, Path("none"))["chat"])
    asked = [arrival.prompt.id for arrival in draw(scenario, 1)]
    assert len(asked) > 2 * num_prompts
    assert len(set(asked[:num_prompts])) == num_prompts
    assert len(set(asked[num_prompts : 2 * num_prompts])) == num_prompts
