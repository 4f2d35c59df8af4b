"""Priors: what pooled counts say of each arm before a prompt's first round.

This module knows neither learners nor where the counts come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policy_service.api import Arm, ArmPrior, CellKey, Snapshot


def arm_priors(
    snapshot: Snapshot,
    chain: Sequence[str],
    versions: Mapping[Arm, str],
    *,
    shrinkage: float,
    strength: float,
    weight: float = 1.0,
) -> dict[Arm, ArmPrior]:
    """Return the prior of every arm that the pool knows.

    From the root downwards each context's mean is shrunk towards that of its parent, as if
    ``shrinkage`` more pulls had earned the parent's mean:
    ``mean = (reward + shrinkage * parent mean) / (pulls + shrinkage)``. A parent's counts include
    its children's, so all evidence there is are the root's pulls; the prior is worth that many,
    at most ``strength``.

    Args:
        snapshot: The pooled counts.
        chain: Contexts of the request, the most specific first.
        versions: The arms and the version of each one's drafter. Counts of another version are
            those of another drafter and not used.
        shrinkage: Pulls of the parent mixed into each context.
        strength: Most pulls that a prior is worth.
        weight: Share of the snapshot's pulls that still counts, for its age, in [0, 1].
    """
    priors = {}
    for arm, version in versions.items():
        cells = [snapshot.cells.get(CellKey(name, str(arm), version)) for name in reversed(chain)]
        evidence = max((cell[0] for cell in cells if cell), default=0.0)
        mean = _shrunk_mean(cells, shrinkage, weight)
        pulls = min(evidence * weight, strength)
        if mean is not None and pulls > 0:
            priors[arm] = ArmPrior(pulls, mean)
    return priors


def _shrunk_mean(
    cells: Sequence[tuple[float, float] | None], shrinkage: float, weight: float
) -> float | None:
    """Return the mean of the last of ``cells``, which run from the root downwards."""
    mean: float | None = None
    for cell in cells:
        if cell is not None and cell[0] * weight > 0:
            pulls, reward = cell[0] * weight, cell[1] * weight
            mixed = shrinkage if mean is not None else 0.0
            mean = (reward + mixed * (mean or 0.0)) / (pulls + mixed)
    return mean
