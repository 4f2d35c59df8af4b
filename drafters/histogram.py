"""Times by size: a histogram of fixed buckets, cheap to add to and additive. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

BOUNDS_MS = (
    *(0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 75.0),
    *(100.0, 150.0, 250.0, 500.0, 1000.0, 2500.0, 10_000.0),
)
"""Upper bounds of the buckets in milliseconds; a last one holds what is longer."""


class Histogram:
    """How many times were how long, in milliseconds."""

    __slots__ = ("_counts", "_sum_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._sum_ms = 0.0

    def add(self, ms: float) -> None:
        """Count one time."""
        self._counts[bisect_left(BOUNDS_MS, ms)] += 1
        self._sum_ms += ms

    def quantile(self, share: float) -> float | None:
        """Return what this share of the times is at most, to the width of a bucket.

        Within a bucket times are taken to lie evenly; those beyond the last bound are said to be at
        it. None if there are no times.
        """
        total = sum(self._counts)
        if total == 0:
            return None
        wanted, below = share * total, 0
        for index, count in enumerate(self._counts[:-1]):
            if count and below + count >= wanted:
                lower = BOUNDS_MS[index - 1] if index else 0.0
                return lower + (BOUNDS_MS[index] - lower) * max(0.0, wanted - below) / count
            below += count
        return BOUNDS_MS[-1]

    def to_json(self) -> dict[str, Any]:
        """Return count, sum, median, 95th percentile, and how many are at most each bound."""
        counts = list(self._counts)
        cumulated, below = {}, 0
        for bound, count in zip(BOUNDS_MS, counts, strict=False):
            below += count
            cumulated[f"{bound:g}"] = below
        return {
            "count": sum(counts),
            "sum_ms": round(self._sum_ms, 3),
            "p50_ms": _rounded(self.quantile(0.5)),
            "p95_ms": _rounded(self.quantile(0.95)),
            "at_most_ms": cumulated,
        }


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)
