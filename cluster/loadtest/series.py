"""How a load test went over time: what the plots show. Pure.

Time is cut into bins of equal width. A request belongs to the bin in which it was due, its rounds
to the one in which it ended, each piece of a reply to the one in which it came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.loadtest.records import LoadResult, RequestRecord, total_arms
from cluster.loadtest.scenario import Scenario
from cluster.loadtest.summary import (
    is_good,
    quantiles,
    ratio,
    total_tally,
    weighted_quantiles,
)

MAX_BINS = 60
MIN_WIDTH_S = 5

Values = list[float | None]


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot: lines over the same times.

    Attributes:
        title: What it shows.
        unit: Of its values.
        times_s: Where each value stands.
        lines: Values by name; None where there is none.
        stacked: Draw bars on top of each other; times are the middles of equal stretches.
        note: How to read it.
    """

    title: str
    unit: str
    times_s: list[float]
    lines: dict[str, Values] = field(default_factory=dict)
    stacked: bool = False
    note: str = ""


def plots(scenario: Scenario, result: LoadResult) -> list[Plot]:
    """Return all plots of a load test."""
    bins = Bins(result.wall_s)
    return [
        _arrivals(scenario, result.records, bins),
        _replicas(result),
        _queue(result),
        _ttft(result.records, bins),
        _itl(result.records, bins),
        _goodput(scenario, result.records, bins),
        *_arms(scenario, result.records, bins),
        _acceptance(scenario, result.records, bins),
    ]


class Bins:
    """Equal stretches of time, of a whole number of seconds."""

    def __init__(self, length_s: float) -> None:
        self.width_s = max(MIN_WIDTH_S, math.ceil(length_s / MAX_BINS))
        self.count = max(1, math.ceil(length_s / self.width_s))
        self.centres = [(number + 0.5) * self.width_s for number in range(self.count)]

    def number(self, at_s: float) -> int:
        """Return the bin of a time."""
        return min(self.count - 1, max(0, int(at_s / self.width_s)))

    def split(
        self, records: Sequence[RequestRecord], by_end: bool = False
    ) -> list[list[RequestRecord]]:
        """Return the requests of each bin."""
        found: list[list[RequestRecord]] = [[] for _ in range(self.count)]
        for record in records:
            found[self.number(record.ended_s if by_end else record.planned_s)].append(record)
        return found


def _arrivals(scenario: Scenario, records: Sequence[RequestRecord], bins: Bins) -> Plot:
    lines: dict[str, Values] = {
        name: [
            sum(record.workload == name for record in some) / bins.width_s
            for some in bins.split(records)
        ]
        for name in scenario.workloads
    }
    return Plot("Arrivals", "requests/s", bins.centres, lines, stacked=True)


def _replicas(result: LoadResult) -> Plot:
    samples = [sample for sample in result.samples if not sample.problem]
    names = sorted({name for sample in samples for name in sample.drafters})
    lines: dict[str, Values] = {"Verifiers": [float(sample.verifiers) for sample in samples]}
    for name in names:
        lines[f"drafter {name}"] = [float(sample.drafters.get(name, 0)) for sample in samples]
    return Plot("Replicas that answer", "replicas", [s.at_s for s in samples], lines)


def _queue(result: LoadResult) -> Plot:
    samples = [sample for sample in result.samples if not sample.problem]
    lines: dict[str, Values] = {
        "waiting": [float(sample.num_waiting) for sample in samples],
        "running": [float(sample.num_running) for sample in samples],
    }
    return Plot("Queue", "requests", [sample.at_s for sample in samples], lines)


def _ttft(records: Sequence[RequestRecord], bins: Bins) -> Plot:
    found = [
        quantiles(record.ttft_ms for record in some if record.ttft_ms is not None)
        for some in bins.split(records)
    ]
    return _quantile_plot("Time to first token", found, bins)


def _itl(records: Sequence[RequestRecord], bins: Bins) -> Plot:
    gaps: list[list[tuple[float, int]]] = [[] for _ in range(bins.count)]
    for record in records:
        for at_s, ms, num_tokens in record.gaps_ms():
            gaps[bins.number(at_s)].append((ms, num_tokens))
    found = [weighted_quantiles(some) for some in gaps]
    return _quantile_plot("Inter-token latency", found, bins)


def _quantile_plot(title: str, found: Sequence[dict[str, float | None]], bins: Bins) -> Plot:
    lines: dict[str, Values] = {
        name: [quantile[name] for quantile in found] for name in ("p50", "p95")
    }
    return Plot(title, "ms", bins.centres, lines)


def _goodput(scenario: Scenario, records: Sequence[RequestRecord], bins: Bins) -> Plot:
    every: list[float] = [0.0] * bins.count
    good: list[float] = [0.0] * bins.count
    for record in records:
        before = 0
        for at_s, num_tokens in record.tokens:
            share = (num_tokens - before) / bins.width_s
            every[bins.number(at_s)] += share
            good[bins.number(at_s)] += share * is_good(record, scenario.slo)
            before = num_tokens
    slo = scenario.slo
    note = (
        f"goodput: of replies whose first token came within {slo.ttft_ms:g} ms and whose tokens "
        f"came every {slo.itl_ms:g} ms or faster on average"
    )
    return Plot(
        "Goodput", "tokens/s", bins.centres, {"all": [*every], "goodput": [*good]}, note=note
    )


def _arms(scenario: Scenario, records: Sequence[RequestRecord], bins: Bins) -> list[Plot]:
    """Return, for each workload, the share of rounds that each arm was given."""
    names = sorted(total_arms(list(records)), key=_arm_order)
    found = []
    for workload in scenario.workloads:
        own = [record for record in records if record.workload == workload]
        lines: dict[str, Values] = {name: [] for name in names}
        for some in bins.split(own, by_end=True):
            tallies = total_arms(some)
            rounds = sum(tally.rounds for tally in tallies.values())
            for name in names:
                of_arm = tallies[name].rounds if name in tallies else 0
                lines[name].append(ratio(of_arm, rounds))
        found.append(Plot(f"Arms: {workload}", "share of rounds", bins.centres, lines, True))
    return found


def _acceptance(scenario: Scenario, records: Sequence[RequestRecord], bins: Bins) -> Plot:
    lines: dict[str, Values] = {}
    for workload in scenario.workloads:
        own = [record for record in records if record.workload == workload]
        totals = [total_tally(total_arms(some).values()) for some in bins.split(own, by_end=True)]
        lines[workload] = [ratio(total.accepted, total.verified) for total in totals]
    return Plot("Acceptance", "accepted of verified draft tokens", bins.centres, lines)


def _arm_order(name: str) -> tuple[str, int]:
    """Order arms by drafter and length, plain decoding first."""
    drafter, _, length = name.partition(":")
    return ("" if name == "none" else drafter), int(length) if length.isdigit() else 0
