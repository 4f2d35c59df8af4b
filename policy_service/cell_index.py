"""Numbers for cells, and which sums each of them belongs to.

A cell counts for itself and for the same arm in all wider contexts, its targets. What one tenant
contributes to a target is a part of it. Numbers are given once and stay, so that counts can be
added up as arrays. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_service.api import CellKey
from policy_service.contexts import parent_of, tenant_of
from policy_service.snapshot_cells import Name

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Links:
    """What belongs to what, as numbers.

    Attributes:
        cell: Cell of each contribution.
        part: Part of each contribution.
        target: Target of each part.
        context: Context of each target.
        name: Name (arm, or what else is counted, and drafter version) of each target.
    """

    cell: Ints
    part: Ints
    target: Ints
    context: Ints
    name: Ints


class CellIndex:
    """Cells, their parts, and their targets; all of them grow, none of them ever goes."""

    def __init__(self) -> None:
        self.contexts: dict[str, int] = {}
        self.names: dict[Name, int] = {}
        self._cells: dict[CellKey, int] = {}
        self._chains: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._targets: dict[tuple[int, int], int] = {}
        self._parts: dict[tuple[int, str], int] = {}
        self._part_targets: list[int] = []
        self._link_cells: list[int] = []
        self._link_parts: list[int] = []
        self._links: Links | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def ids(self, keys: Iterable[CellKey]) -> Ints:
        """Return the numbers of cells, giving one to each that has none."""
        get, add = self._cells.get, self._add
        return np.array([add(k) if (n := get(k)) is None else n for k in keys], np.int32)

    def links(self) -> Links:
        """Return what belongs to what."""
        if self._links is None:
            targets = np.array(list(self._targets), np.int32).reshape(-1, 2)
            self._links = Links(
                np.array(self._link_cells, np.int32),
                np.array(self._link_parts, np.int32),
                np.array(self._part_targets, np.int32),
                targets[:, 0],
                targets[:, 1],
            )
        return self._links

    def _add(self, key: CellKey) -> int:
        self._links = None
        cell = self._cells[key] = len(self._cells)
        name = self.names.setdefault((key.arm, key.drafter_version), len(self.names))
        tenant, wider = self._chain(key.context)
        for context in wider:
            target = self._targets.setdefault((context, name), len(self._targets))
            part = self._parts.setdefault((target, tenant), len(self._parts))
            if part == len(self._part_targets):
                self._part_targets.append(target)
            self._link_cells.append(cell)
            self._link_parts.append(part)
        return cell

    def _chain(self, context: str) -> tuple[str, tuple[int, ...]]:
        """Return a context's tenant, and the numbers of the context and of all wider ones."""
        number = self._number(context)
        if number not in self._chains:
            chain: list[int] = []
            wider: str | None = context
            while wider is not None:
                chain.append(self._number(wider))
                wider = parent_of(wider)
            self._chains[number] = tenant_of(context), tuple(chain)
        return self._chains[number]

    def _number(self, context: str) -> int:
        return self.contexts.setdefault(context, len(self.contexts))
