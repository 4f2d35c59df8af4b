"""Pearson's test of counts against expected ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import torch

Outcome = TypeVar("Outcome", bound=Hashable)

SIGNIFICANT = 1e-4
"""A test fails below this. Seeds are fixed, so a test that passes once passes always."""

_POOLED_BELOW = 5.0
"""Cells that expect fewer are pooled: there the statistic is not chi-square distributed."""


def survival(statistic: float, degrees: int) -> float:
    """Return the probability that chi-square of so many degrees of freedom is at least that."""
    halves = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(halves[0], halves[1]))


def p_value(outcomes: Iterable[Outcome], law: Mapping[Outcome, float]) -> float:
    """Return how likely outcomes are to lie as far from a law as these, if they follow it."""
    counts = Counter(outcomes)
    if any(law.get(outcome, 0.0) == 0 for outcome in counts):
        return 0.0
    num_outcomes = counts.total()
    statistic, num_cells = 0.0, 0
    pooled_count, pooled_expected = 0, 0.0
    for outcome, probability in law.items():
        expected = probability * num_outcomes
        if expected < _POOLED_BELOW:
            pooled_count += counts[outcome]
            pooled_expected += expected
            continue
        statistic += (counts[outcome] - expected) ** 2 / expected
        num_cells += 1
    if pooled_expected >= _POOLED_BELOW:
        statistic += (pooled_count - pooled_expected) ** 2 / pooled_expected
        num_cells += 1
    return survival(statistic, num_cells - 1)
