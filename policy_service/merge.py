"""Sums counts up the contexts and lets them fade with age.

Pure: time is passed in; where counts are kept is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policy_service.api import ArmCounts, CellKey
from policy_service.contexts import parent_of

Epochs = Mapping[int, Mapping[CellKey, ArmCounts]]
"""Counts by start of the epoch, in seconds since 1970."""


def age_weight(age_s: float, half_life_s: float) -> float:
    """Return what a count of this age weighs, in (0, 1]; one from the future weighs 1.

    >>> age_weight(120, half_life_s=60)
    0.25
    """
    return float(0.5 ** (max(0.0, age_s) / half_life_s))


def totals(epochs: Epochs) -> dict[CellKey, ArmCounts]:
    """Return the undecayed counts of every cell, summed over epochs and up the contexts."""
    sums: dict[CellKey, ArmCounts] = {}
    for cells in epochs.values():
        for key, counts in cells.items():
            for wider in upwards(key):
                sums[wider] = sums.get(wider, ArmCounts()) + counts
    return sums


def last_epochs(epochs: Epochs) -> dict[CellKey, int]:
    """Return the start of the newest epoch that each cell, or one below it, has counts in."""
    last: dict[CellKey, int] = {}
    for epoch in sorted(epochs):
        for key in epochs[epoch]:
            for wider in upwards(key):
                last[wider] = epoch
    return last


def upwards(key: CellKey) -> Iterator[CellKey]:
    """Yield the cell and the same arm's cells in all wider contexts."""
    context: str | None = key.context
    while context is not None:
        yield CellKey(context, key.arm, key.drafter_version)
        context = parent_of(context)
