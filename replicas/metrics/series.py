"""What a Prometheus series is: name, type, meaning, labels, buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Part = Literal["verifier", "ingress", "policy", "drafter"]

SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0),
    *(7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""Upper bounds of the buckets of a request's times."""
STEP_SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 10.0, 40.0),
)
"""Of the times between tokens and of steps."""
DRAFT_SECONDS = (
    *(0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02),
    *(0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0),
)
"""Of what drafts take; drafters report theirs in the same buckets."""
TOKENS = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0),
    *(20_000.0, 50_000.0, 100_000.0),
)
"""Of a request's tokens."""
STEP_TOKENS = tuple(float(1 << power) for power in range(15))
"""Of a step's tokens and sequences."""
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Of ``n``."""

ENGINE = ("model_name", "engine")
"""Labels of all that a Verifier says."""
DRAFTER = (*ENGINE, "drafter")
"""Of what it says of a drafter."""
ARM = (*ENGINE, "learner", "context", "drafter", "gamma")
"""Of what it says of an arm."""
HOST = ("model_name", "drafter", "replica")
"""Of what a drafter's host says."""
INGRESS = ("model_name", "replica")
"""Of what an Ingress says."""
POLICY = ("model_name",)
"""Of what the Policy says."""


@dataclass(frozen=True, slots=True)
class Series:
    """One family of series.

    Attributes:
        name: As scraped; a histogram's without ``_bucket``, ``_sum`` and ``_count``.
        kind: Its type.
        help: What it says, in one sentence.
        labels: Names of its labels.
        part: Which kind of process has it.
        buckets: Upper bounds of a histogram's buckets, without infinity.
        after: What must have happened before it is there; empty if it is there from the start.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ENGINE
    part: Part = "verifier"
    buckets: tuple[float, ...] = ()
    after: str = ""

    def sample_names(self) -> tuple[str, ...]:
        """Return the names that its lines begin with."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "sum", "count"))
        return (self.name,)


def counter(name: str, meaning: str, labels: tuple[str, ...] = ENGINE, after: str = "") -> Series:
    """Return a counter of a Verifier; ``_total`` is added to its name."""
    return Series(f"{name}_total", "counter", meaning, labels, after=after)


def gauge(name: str, meaning: str, labels: tuple[str, ...] = ENGINE, after: str = "") -> Series:
    """Return a gauge of a Verifier."""
    return Series(name, "gauge", meaning, labels, after=after)


def histogram(
    name: str, meaning: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ENGINE
) -> Series:
    """Return a histogram of a Verifier."""
    return Series(name, "histogram", meaning, labels, buckets=buckets)
