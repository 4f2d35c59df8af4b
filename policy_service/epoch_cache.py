"""What one process knows of an epoch's cells: what it read, and what it has added since.

The store gives an epoch another revision with every change and says, with each batch it applies,
the revision before and the one after. As long as those follow on each other, nobody else has
written, and the cells need not be read again. Answers may arrive in any order.

Pure: knows no store.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy_service.api import ArmCounts, CellKey

MAX_PENDING = 1000
"""Most changes that wait for one before them; more are forgotten and the epoch is read again."""

_NO_COUNTS = ArmCounts()


class EpochCache:
    """One epoch; begins as one that nobody has written to."""

    def __init__(self) -> None:
        self.revision = ""
        self._cells: dict[CellKey, ArmCounts] = {}
        self._shown: Mapping[CellKey, ArmCounts] | None = None
        self._pending: dict[str, tuple[str, Mapping[CellKey, ArmCounts]]] = {}
        self._passed: dict[str, None] = {}

    def has(self, revision: str) -> bool:
        """Whether the cells are those of a revision, or what they became by our own changes."""
        return revision == self.revision or revision in self._passed

    def load(self, revision: str, cells: Mapping[CellKey, ArmCounts]) -> None:
        """Take what was read."""
        self.revision, self._cells, self._shown = revision, dict(cells), None
        self._passed.clear()
        self._advance()

    def add(self, before: str, after: str, deltas: Mapping[CellKey, ArmCounts]) -> None:
        """Note a change that the store made for us, from one revision to another."""
        if len(self._pending) >= MAX_PENDING:
            self._pending.clear()
        self._pending[before] = (after, deltas)
        self._advance()

    def cells(self) -> Mapping[CellKey, ArmCounts]:
        """Return the cells at ``revision``: the same object until they change."""
        if self._shown is None:
            self._shown = dict(self._cells)
        return self._shown

    def _advance(self) -> None:
        while (change := self._pending.pop(self.revision, None)) is not None:
            self._passed[self.revision] = None
            if len(self._passed) > MAX_PENDING:
                del self._passed[next(iter(self._passed))]
            self.revision, deltas = change
            self._shown = None
            for key, counts in deltas.items():
                self._cells[key] = self._cells.get(key, _NO_COUNTS) + counts
