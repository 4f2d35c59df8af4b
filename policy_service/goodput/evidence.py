"""Counts of drafts by context: this Verifier's own, what of them is still to be sent, the pool's.

What a context is known by is the pool's counts and those of its own that the pool cannot have yet:
counts of before the last snapshot but one. So a Verifier that is cut off goes by its own counts.
``take`` and ``set_snapshot`` may be called from any thread; all else belongs to the engine's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policy_service.api import EMPTY_SNAPSHOT, SHADOW, ArmCounts, CellKey, Snapshot
from policy_service.goodput.arrays import grown
from policy_service.goodput.cells import NUM_BUCKETS, NUM_COLUMNS, Counts, named_counts, parse_cell
from policy_service.snapshot_cells import cells_of

_SHAPE = (NUM_BUCKETS + 1, NUM_COLUMNS, 2)

_MOST_WAITING_STEPS = 4
_MOST_WAITING = 256

Pooled = Mapping[tuple[str, str], NDArray[np.float64]]
"""Counts by drafter and its version."""


def pooled_counts(snapshot: Snapshot, context: str) -> Pooled:
    """Return a snapshot's counts of drafts in a context; those of siblings summed over depths."""
    pooled: dict[tuple[str, str], NDArray[np.float64]] = {}
    for (arm, version), cell in cells_of(snapshot.cells, context).items():
        parsed = parse_cell(arm)
        if parsed is not None:
            drafter, bucket, column = parsed
            if (drafter, version) not in pooled:
                pooled[drafter, version] = np.zeros(_SHAPE)
            pooled[drafter, version][bucket, column] += cell
    return pooled


class Counted(NamedTuple):
    """Drafts of a step that are to be counted.

    Attributes:
        chains: Rows of each one's contexts, from the own one to the root; equal ones, which then
            stand side by side, count once, ``[num, num_levels]``.
        drafters: Whose draft, ``[num]``.
        buckets: Of its score, ``[num]``.
        lengths: Its tokens, ``[num]``.
        columns: Of the cell of each of its tokens, ``[num, longest]``.
        offered: Whether the token was offered, the same.
        accepted: Whether it was accepted, the same.
    """

    chains: NDArray[np.intp]
    drafters: NDArray[np.intp]
    buckets: NDArray[np.intp]
    lengths: NDArray[np.int64]
    columns: NDArray[np.intp]
    offered: NDArray[np.bool_]
    accepted: NDArray[np.bool_]


class Evidence:
    """Counts of one Verifier's contexts, one row a context.

    Attributes:
        version: Changes with every other snapshot.
        news: Tokens counted in each row since somebody last set it to 0, ``[num_rows]``.
    """

    def __init__(self, max_contexts: int) -> None:
        """Start without contexts and drafters.

        Args:
            max_contexts: Rows beyond so many are given to other contexts once nobody uses them.
        """
        self._max_rows = max_contexts + 16
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._users: list[int] = []
        self._drafters: list[tuple[str, str]] = []
        self._total: Counts = np.zeros((0, 0, *_SHAPE), np.int64)
        self._sent, self._known, self._seen = (self._total.copy() for _ in range(3))
        self._touched: set[tuple[int, int]] = set()
        self._orphans: dict[CellKey, ArmCounts] = {}
        self._waiting: list[Counted] = []
        self._num_waiting = 0
        self.news = np.zeros(0)
        self._snapshot, self._weight = EMPTY_SNAPSHOT, 1.0
        self._pooled: dict[str, Pooled] = {}
        self.version = 0

    def is_used(self, row: int) -> bool:
        """Return whether somebody has acquired a row and not released it."""
        return self._users[row] > 0

    def set_drafter(self, index: int, name: str, version: str) -> None:
        """Add a drafter, or say that its version is another: its counts then start anew."""
        with self._lock:
            if index == len(self._drafters):
                self._drafters.append((name, version))
                self._resize(len(self._total), index + 1)
            else:
                self._add_waiting()
                its_own = {one for one in self._touched if one[1] == index}
                _merge(self._orphans, self._unsent(its_own))
                self._touched -= its_own
                self._drafters[index] = (name, version)
                for counts in (self._total, self._sent, self._known, self._seen):
                    counts[:, index] = 0

    def acquire(self, context: str) -> int:
        """Return the row of a context, which is then kept until it is released as often."""
        with self._lock:
            row = self._rows.get(context)
            if row is None:
                row = self._new_row(context)
            self._users[row] += 1
            return row

    def release(self, row: int) -> None:
        """Say that one who acquired a row needs it no more."""
        self._users[row] -= 1

    def add(self, counted: Counted) -> None:
        """Add drafts, in their contexts and all above them."""
        with self._lock:
            self._waiting.append(counted)
            self._num_waiting += len(counted.drafters)
            if len(self._waiting) >= _MOST_WAITING_STEPS or self._num_waiting >= _MOST_WAITING:
                self._add_waiting()

    def take(self) -> dict[CellKey, ArmCounts]:
        """Return what was counted since the last call, by cells of the own contexts."""
        with self._lock:
            self._add_waiting()
            deltas, self._orphans = self._orphans, {}
            _merge(deltas, self._unsent(self._touched))
            self._touched = set()
        return deltas

    def set_snapshot(self, snapshot: Snapshot, weight: float, *, is_new: bool) -> None:
        """Take over the pool's counts.

        Args:
            snapshot: The counts.
            weight: Share of them that still counts for their age.
            is_new: It is another snapshot, and so has what was sent before the last one came.
        """
        with self._lock:
            self._snapshot, self._weight = snapshot, weight
            if is_new:
                self._add_waiting()
                self._pooled = {}
                self._known, self._seen = self._seen, self._total.copy()
                self.version += 1

    def levels(self, chain: Sequence[int]) -> list[NDArray[np.float64]]:
        """Return all that is known of contexts, the widest first, ``[num_drafters, ...]`` each.

        Args:
            chain: Their rows, the own one first, the root's last.
        """
        with self._lock:
            self._add_waiting()
            rows = list(dict.fromkeys(reversed(chain)))
            levels = [(self._total[row] - self._known[row]).astype(np.float64) for row in rows]
            for row, level in zip(rows, levels, strict=True):
                self._add_pooled(level, self._names[row])
            self._add_pooled(levels[0], SHADOW)
        return levels

    def _add_pooled(self, level: NDArray[np.float64], context: str) -> None:
        pooled = self._pooled.get(context)
        if pooled is None:  # read when it is needed: a snapshot has far more contexts than that
            pooled = self._pooled[context] = pooled_counts(self._snapshot, context)
        for index, drafter in enumerate(self._drafters):
            if drafter in pooled:
                level[index] += self._weight * pooled[drafter]

    def _unsent(self, touched: set[tuple[int, int]]) -> dict[CellKey, ArmCounts]:
        deltas: dict[CellKey, ArmCounts] = {}
        for row, index in touched:
            name, version = self._drafters[index]
            unsent = self._total[row, index] - self._sent[row, index]
            self._sent[row, index] = self._total[row, index]
            for cell, counts in named_counts(name, unsent):
                deltas[CellKey(self._names[row], cell, version)] = counts
        return deltas

    def _add_waiting(self) -> None:
        """Count what is waiting; several steps at once, for that takes hardly longer than one."""
        if not self._waiting:
            return
        steps = zip(*self._waiting, strict=True)
        all_of = Counted(*(np.concatenate(parts) for parts in steps))
        self._waiting, self._num_waiting = [], 0
        self._touched.update(
            zip(all_of.chains[:, 0].tolist(), all_of.drafters.tolist(), strict=True)
        )
        drafts, tokens = np.nonzero(all_of.offered)
        self._add_cells(all_of, np.arange(len(all_of.drafters)), 0, 1, all_of.lengths)
        columns = all_of.columns[drafts, tokens]
        self._add_cells(all_of, drafts, columns, 1, all_of.accepted[drafts, tokens])
        np.add.at(self.news, all_of.chains[:, 0], 1.0 + all_of.offered.sum(axis=1))

    def _add_cells(
        self,
        counted: Counted,
        drafts: NDArray[np.intp],
        columns: NDArray[np.intp] | int,
        offered: int,
        accepted: NDArray[Any],
    ) -> None:
        """Add to a cell of each of some drafts, in all levels of its contexts."""
        _, num_drafters, num_buckets, num_columns, _ = self._total.shape
        chains = counted.chains[drafts]
        cells = counted.drafters[drafts] * num_buckets + counted.buckets[drafts]
        cells = (cells * num_columns + columns) * 2
        places = chains * (num_drafters * num_buckets * num_columns * 2) + cells[:, None]
        is_other = np.ones(chains.shape, np.bool_)
        is_other[:, 1:] = chains[:, 1:] != chains[:, :-1]
        total = self._total.reshape(-1)
        np.add.at(total, places[is_other], offered)
        amounts = np.broadcast_to(accepted[:, None], chains.shape)
        np.add.at(total, places[is_other] + 1, amounts[is_other])

    def _new_row(self, context: str) -> int:
        row = self._idle_row() if len(self._names) >= self._max_rows else None
        if row is None:
            row = len(self._names)
            self._names.append(context)
            self._users.append(0)
            if row == len(self._total):
                self._resize(max(8, 2 * row), len(self._drafters))
        else:
            del self._rows[self._names[row]]
            self._names[row] = context
            self.news[row] = 0.0
            for counts in (self._total, self._sent, self._known, self._seen):
                counts[row] = 0
        self._rows[context] = row
        return row

    def _idle_row(self) -> int | None:
        """Return a row that nobody uses and of which all has been taken."""
        self._add_waiting()
        waiting = {row for row, _ in self._touched}
        idle = (row for row, users in enumerate(self._users) if not users and row not in waiting)
        return next(idle, None)

    def _resize(self, num_rows: int, num_drafters: int) -> None:
        self._add_waiting()
        self.news = grown(self.news, num_rows)
        for name in ("_total", "_sent", "_known", "_seen"):
            setattr(self, name, grown(getattr(self, name), num_rows, num_drafters))


def _merge(total: dict[CellKey, ArmCounts], more: Mapping[CellKey, ArmCounts]) -> None:
    for key, counts in more.items():
        total[key] = total[key] + counts if key in total else counts
