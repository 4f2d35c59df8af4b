"""Pools counts: sums them up the contexts and lets them fade with age.

Pure: time is passed in; where counts are kept is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policy_service.api import ArmCounts, CellKey, RewardKind
from policy_service.contexts import is_specific, parent_of

LEAST_PULLS = 1.0
"""A specific context that faded to less than this gives its place to another."""

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
            for wider in _upwards(key):
                sums[wider] = sums.get(wider, ArmCounts()) + counts
    return sums


def pooled_cells(
    epochs: Epochs,
    now: float,
    *,
    epoch_s: float,
    half_life_s: float,
    max_contexts: int,
    reward_kind: RewardKind = "tokens",
) -> dict[CellKey, tuple[float, float]]:
    """Return the decayed (pulls, reward) of every cell, parents included.

    An epoch's age is counted from its end, so the running one weighs 1. Of the most specific
    contexts the ``max_contexts`` with the most decayed pulls are kept; the rest are in their
    parents' sums.
    """
    sums: dict[CellKey, tuple[float, float]] = {}
    for epoch, cells in epochs.items():
        weight = age_weight(now - (epoch + epoch_s), half_life_s)
        for key, counts in cells.items():
            for wider in _upwards(key):
                pulls, reward = sums.get(wider, (0.0, 0.0))
                sums[wider] = (
                    pulls + weight * counts.pulls,
                    reward + weight * counts.reward(reward_kind),
                )
    kept = _heaviest(sums, max_contexts)
    return {
        key: cell
        for key, cell in sums.items()
        if cell[0] > 0 and (key.context in kept or not is_specific(key.context))
    }


def _heaviest(sums: Mapping[CellKey, tuple[float, float]], max_contexts: int) -> set[str]:
    """Return the specific contexts with the most pulls; equals by name."""
    pulls: dict[str, float] = {}
    for key, cell in sums.items():
        if is_specific(key.context):
            pulls[key.context] = pulls.get(key.context, 0.0) + cell[0]
    ranked = sorted((-count, name) for name, count in pulls.items() if count >= LEAST_PULLS)
    return {name for _, name in ranked[:max_contexts]}


def _upwards(key: CellKey) -> Iterator[CellKey]:
    """Yield the cell and the same arm's cells in all wider contexts."""
    context: str | None = key.context
    while context is not None:
        yield CellKey(context, key.arm, key.drafter_version)
        context = parent_of(context)
