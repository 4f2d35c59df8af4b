"""Figures of a load test: of the whole, of each phase and of each workload. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from cluster.loadtest.records import ArmTally, LoadResult, RequestRecord, total_arms
from cluster.loadtest.scenario import Scenario, Slo

QUANTILES = (50, 95, 99)


def summarise(scenario: Scenario, result: LoadResult) -> dict[str, Any]:
    """Return the figures of the whole, by phase and by workload."""
    records = result.records
    by_phase = {
        phase.name: [record for record in records if record.phase == phase.name]
        for phase in scenario.phases
    }
    by_workload = {
        name: [record for record in records if record.workload == name]
        for name in scenario.workloads
    }
    lengths_s: dict[str, float] = {}
    for phase in scenario.phases:
        lengths_s[phase.name] = lengths_s.get(phase.name, 0.0) + phase.duration_s
    return {
        "all": figures(records, result.wall_s - scenario.settle_s, scenario.slo),
        "phases": {
            name: figures(some, lengths_s[name], scenario.slo) for name, some in by_phase.items()
        },
        "workloads": {
            name: figures(some, scenario.duration_s, scenario.slo)
            for name, some in by_workload.items()
        },
    }


def figures(records: Sequence[RequestRecord], length_s: float, slo: Slo) -> dict[str, Any]:
    """Return the figures of some requests.

    Args:
        records: The requests.
        length_s: How long it took them to come, for rates.
        slo: What counts as goodput.
    """
    ok = [record for record in records if record.is_ok]
    total = total_tally(total_arms(ok).values())
    num_tokens = sum(record.num_tokens for record in ok)
    good = sum(record.num_tokens for record in ok if is_good(record, slo))
    return {
        "requests": len(records),
        "failed": len(records) - len(ok),
        "errors": dict(Counter(record.error for record in records if not record.is_ok)),
        "resubmitted": sum(record.attempts > 1 for record in records),
        "tokens": num_tokens,
        "tokens_per_s": num_tokens / length_s if length_s > 0 else 0.0,
        "goodput_tokens_per_s": good / length_s if length_s > 0 else 0.0,
        "ttft_ms": quantiles(r.ttft_ms for r in ok if r.ttft_ms is not None),
        "itl_ms": weighted_quantiles([(ms, n) for r in ok for _, ms, n in r.gaps_ms()]),
        "e2e_ms": quantiles((r.ended_s - r.planned_s) * 1e3 for r in ok),
        "sent_late_ms": quantiles((r.sent_s - r.planned_s) * 1e3 for r in records),
        "acceptance_rate": ratio(total.accepted, total.verified),
        "tokens_per_round": ratio(total.emitted, total.rounds),
        "mean_draft": ratio(total.verified, total.rounds),
        "arms": {arm: asdict(tally) for arm, tally in sorted(total_arms(ok).items())},
    }


def is_good(record: RequestRecord, slo: Slo) -> bool:
    """Whether a user would be content with a reply."""
    ttft, itl = record.ttft_ms, record.mean_itl_ms
    return (
        record.is_ok
        and ttft is not None
        and ttft <= slo.ttft_ms
        and (itl is None or itl <= slo.itl_ms)
    )


def total_tally(tallies: Iterable[ArmTally]) -> ArmTally:
    """Return the sum of tallies."""
    total = ArmTally()
    for tally in tallies:
        total.add(tally)
    return total


def ratio(part: float, whole: float) -> float | None:
    """Return part over whole, None of nothing."""
    return part / whole if whole else None


def quantiles(values: Iterable[float]) -> dict[str, float | None]:
    """Return p50, p95 and p99, each the least value that so many are not above.

    >>> quantiles([4.0, 1.0, 2.0, 3.0])
    {'p50': 2.0, 'p95': 4.0, 'p99': 4.0}
    """
    return weighted_quantiles([(value, 1) for value in values])


def weighted_quantiles(pairs: Sequence[tuple[float, int]]) -> dict[str, float | None]:
    """Return p50, p95 and p99 of values that each count several times.

    >>> weighted_quantiles([(1.0, 98), (7.0, 2)])
    {'p50': 1.0, 'p95': 1.0, 'p99': 7.0}
    """
    ordered = sorted(pairs)
    total = sum(weight for _, weight in ordered)
    found: dict[str, float | None] = {}
    for percent in QUANTILES:
        found[f"p{percent}"], reached = None, 0
        for value, weight in ordered:
            reached += weight
            if 100 * reached >= percent * total:
                found[f"p{percent}"] = value
                break
    return found
