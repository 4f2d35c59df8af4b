"""What to give up when the counts take too much room: resolution first, and age at last.

First the fine contexts of old epochs are added up by tenant, then by route, which changes no sum of
the contexts above; only then are old epochs dropped. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from policy_service.api import CellKey
from policy_service.contexts import is_of_whole_tenant, is_specific, of_whole_tenant, parent_of
from policy_service.merge import Epochs


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do.

    Attributes:
        epoch: Start of the epoch.
        moves: Cells to add to others; none: drop the epoch.
    """

    epoch: int
    moves: Sequence[tuple[CellKey, CellKey]] = ()


def next_step(epochs: Epochs, num_bytes: Mapping[int, int], max_bytes: int) -> Step | None:
    """Return what to do next so that all epochs together take less; None if they fit.

    The newest epoch is never dropped, so the bound holds as long as the wide contexts of one epoch
    fit in it.
    """
    if sum(num_bytes.get(epoch, 0) for epoch in epochs) <= max_bytes:
        return None
    for widen in (_to_tenant, _to_parent):
        for epoch in sorted(epochs):
            moves = [(key, place) for key in epochs[epoch] if (place := widen(key)) is not None]
            if moves:
                return Step(epoch, moves)
    return Step(min(epochs)) if len(epochs) > 1 else None


def _to_tenant(key: CellKey) -> CellKey | None:
    """Return a fine context's cell of the whole tenant."""
    if not is_specific(key.context) or is_of_whole_tenant(key.context):
        return None
    return replace(key, context=of_whole_tenant(key.context))


def _to_parent(key: CellKey) -> CellKey | None:
    """Return a specific context's cell of its parent."""
    if not is_specific(key.context):
        return None
    parent = parent_of(key.context)
    return replace(key, context=parent) if parent is not None else None
