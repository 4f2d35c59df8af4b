"""What a process measured, as plain data that travels: samples, and how they are read off reports.

Knows no Prometheus: ``replicas.metrics.exposition`` makes text of samples.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Labels = Mapping[str, str]


@dataclass(slots=True)
class Distribution:
    """How many values were how large, by buckets.

    Attributes:
        bounds: Upper bounds of the buckets, rising; a last bucket holds what is larger.
        counts: Values in each bucket; one more than there are bounds.
        total: Sum of the values.
    """

    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Distribution:
        """Return a distribution of no values."""
        return cls(bounds, [0] * (len(bounds) + 1))

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Distribution:
        """Return what has come so far."""
        return Distribution(self.bounds, list(self.counts), self.total)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series.

    Attributes:
        name: Of the series, as in the catalogue.
        labels: All of its labels.
        value: A histogram's is a distribution.
    """

    name: str
    labels: Labels
    value: float | Distribution


def read_report(
    report: Mapping[str, Any], fields: Mapping[str, str], labels: Labels
) -> Iterator[Sample]:
    """Yield a sample of each series that a report has a value for.

    Args:
        report: What a part says of itself.
        fields: By series, where its value is in the report: keys joined by dots.
        labels: Of all of them.
    """
    for name, path in fields.items():
        value: Any = report
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool | int | float):
            yield Sample(name, labels, float(value))


def by_label(
    name: str, labels: Labels, label: str, values: Iterable[tuple[object, float]]
) -> Iterator[Sample]:
    """Yield a sample for each value of a further label."""
    for key, value in values:
        yield Sample(name, {**labels, label: str(key)}, float(value))


def read_histogram(times: Mapping[str, Any]) -> Distribution:
    """Return the seconds of a histogram that a drafter's tally reported in milliseconds."""
    cumulated = times["at_most_ms"]
    bounds = tuple(float(bound) / 1e3 for bound in cumulated)
    below = [0, *cumulated.values(), times["count"]]
    return Distribution(
        bounds, [high - low for low, high in pairwise(below)], times["sum_ms"] / 1e3
    )
