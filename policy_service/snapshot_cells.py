"""The cells of a snapshot in a form that travels: a few arrays, unpacked where they are looked at.

A snapshot goes to every replica several times a second, and a replica looks at the few contexts
that its requests have. So cells lie by context, are packed once however many replicas they go to,
and a context's are unpacked when one of them is asked for.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from policy_service.api import CellKey

Name = tuple[str, str]
"""Arm (or what else is counted) and version of its drafter."""


class PackedCells(Mapping[CellKey, tuple[float, float]]):
    """(pulls, reward) of each cell, single precision; immutable."""

    def __init__(self, packed: bytes) -> None:
        """Take what ``pack`` packed."""
        self._packed = packed
        contexts, starts, names, name_ids, values = pickle.loads(packed)
        self._places: dict[str, int] = {context: i for i, context in enumerate(contexts)}
        self._starts: NDArray[np.int32] = starts
        self._names: Sequence[Name] = names
        self._name_ids: NDArray[np.int32] = name_ids
        self._values: NDArray[np.float32] = values
        self._unpacked: dict[str, Mapping[Name, tuple[float, float]]] = {}

    @classmethod
    def pack(
        cls,
        contexts: Sequence[str],
        starts: NDArray[np.int32],
        names: Sequence[Name],
        name_ids: NDArray[np.int32],
        values: NDArray[np.float32],
    ) -> Self:
        """Pack cells that lie by context.

        Args:
            contexts: The contexts.
            starts: Where each one's cells start, and where the last one's end,
                ``[contexts + 1]``.
            names: All names there are.
            name_ids: Which of them each cell has, ``[cells]``.
            values: Pulls and reward, ``[cells, 2]``.
        """
        content = (tuple(contexts), starts, tuple(names), name_ids, values)
        return cls(pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL))

    @property
    def contexts(self) -> Sequence[str]:
        """All contexts that have a cell."""
        return tuple(self._places)

    @property
    def num_bytes(self) -> int:
        """Bytes that travel."""
        return len(self._packed)

    def of_context(self, context: str) -> Mapping[Name, tuple[float, float]]:
        """Return the cells of one context by name; empty if it has none."""
        if context not in self._unpacked:
            place = self._places.get(context)
            if place is None:
                return {}
            part = slice(int(self._starts[place]), int(self._starts[place + 1]))
            names = [self._names[i] for i in self._name_ids[part].tolist()]
            cells = zip(names, self._values[part].tolist(), strict=True)
            self._unpacked[context] = {name: (pulls, reward) for name, (pulls, reward) in cells}
        return self._unpacked[context]

    def __getitem__(self, key: CellKey) -> tuple[float, float]:
        return self.of_context(key.context)[key.arm, key.drafter_version]

    def __iter__(self) -> Iterator[CellKey]:
        for context in self._places:
            for arm, version in self.of_context(context):
                yield CellKey(context, arm, version)

    def __len__(self) -> int:
        return len(self._name_ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedCells, (self._packed,)


def contexts_of(cells: Mapping[CellKey, tuple[float, float]]) -> Sequence[str]:
    """Return all contexts that have a cell."""
    if isinstance(cells, PackedCells):
        return cells.contexts
    return list(dict.fromkeys(key.context for key in cells))


def cells_of(
    cells: Mapping[CellKey, tuple[float, float]], context: str
) -> Mapping[Name, tuple[float, float]]:
    """Return the cells of one context by name."""
    if isinstance(cells, PackedCells):
        return cells.of_context(context)
    return {
        (key.arm, key.drafter_version): cell
        for key, cell in cells.items()
        if key.context == context
    }
