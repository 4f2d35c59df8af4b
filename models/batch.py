"""One step's input to the target: all sequences' new rows, packed one after the other.

A sequence adds a segment: the tokens it must compute (a prefill chunk, or its last committed token)
and, after them, a tree of tokens that may follow. Rows of a segment see the sequence's cached
tokens, the segment's own committed tokens before them and, in a tree, their ancestors. Pure
construction; numpy and torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from models.grouping import SegmentGroup


@dataclass(slots=True)
class Segment:
    """The rows of one sequence in a step.

    Attributes:
        first_row: Index of its first row in the pack.
        num_cached: Tokens of the sequence whose keys and values are in the cache.
        token_ids: Tokens of its rows, ``[num_rows]``.
        tree: Parents of the tokens at its end that are a tree, as indices into the tree, smaller
            than their own; -1 is the last committed token. Empty if all rows are committed. The
            first of a tree may be in the cache, behind the committed tokens; all rows are then its.
        slots: Cache slots of all tokens, cached and new, ``[num_cached + num_rows]``.
        num_logits: How many rows, counted from the end, need logits.
    """

    first_row: int
    num_cached: int
    token_ids: list[int]
    tree: Sequence[int]
    slots: list[int]
    num_logits: int
    _row_contexts: dict[int | None, list[slice | Tensor]] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows of the segment."""
        return len(self.token_ids)

    @property
    def num_committed(self) -> int:
        """Tokens before the tree, cached and new: the position of its first ones."""
        return self.num_cached + self.num_rows - len(self.tree)

    def positions(self) -> list[int]:
        """Return the position of each row in its sequence; siblings in a tree share one."""
        committed = range(self.num_cached, self.num_committed)
        num_new = self.num_rows - len(committed)
        return [*committed, *self._tree_positions()[len(self.tree) - num_new :]]

    def _tree_positions(self) -> list[int]:
        positions: list[int] = []
        for parent in self.tree:
            positions.append(positions[parent] + 1 if parent >= 0 else self.num_committed)
        return positions

    def context(self, device: torch.device) -> slice | Tensor:
        """Return how to find the segment's keys: a slice where its slots follow each other."""
        return index_of(self.slots, device)

    def row_contexts(self, window: int | None, device: torch.device) -> list[slice | Tensor]:
        """Return how to find the keys that each row sees, one entry a row; see ``mask``."""
        if window not in self._row_contexts:
            slots = np.array(self.slots)
            self._row_contexts[window] = [
                index_of(slots[row].tolist(), device) for row in self._visible(window)
            ]
        return self._row_contexts[window]

    def mask(
        self, window: int | None, device: torch.device, dtype: torch.dtype, group: int = 1
    ) -> Tensor | None:
        """Return what to add to the scores, ``[group * num_rows, num_cached + num_rows]``.

        Args:
            window: Sliding window in tokens, the row's own included; None for full attention.
            device: Where to put it.
            dtype: Number format of the scores.
            group: How often to repeat the rows, for query heads that share keys.

        Returns:
            0 for keys that a row sees and minus infinity for others, or None where every row sees
            every key.
        """
        visible = self._visible(window)
        if visible.all():
            return None
        hidden = np.where(np.tile(visible, (group, 1)), np.float32(0), -np.inf)
        return torch.from_numpy(hidden).to(device, dtype)

    def _visible(self, window: int | None) -> NDArray[np.bool_]:
        num_rows, total = self.num_rows, self.num_cached + self.num_rows
        visible = np.tri(num_rows, total, self.num_cached, dtype=np.bool_)
        if any(parent != node - 1 for node, parent in enumerate(self.tree)):
            new = min(num_rows, len(self.tree))
            visible[-new:, self.num_committed :] = _ancestors(self.tree)[-new:]
        if window is not None:
            tree = np.array(self._tree_positions(), dtype=np.int64)
            keys = np.concatenate([np.arange(self.num_committed), tree])
            visible &= keys[self.num_cached :, None] - keys[None, :] < window
        return visible


@dataclass(slots=True)
class PackedBatch:
    """All segments of a step.

    Attributes:
        segments: The segments, in row order.
        num_rows: Rows of all of them.
        groups: The segments by shape, once ``grouping.grouped`` has made them.
    """

    segments: list[Segment] = field(default_factory=list)
    num_rows: int = 0
    groups: list[SegmentGroup] | None = None

    def add(
        self,
        num_cached: int,
        token_ids: Sequence[int],
        slots: list[int],
        needs_logits: bool,
        tree: Sequence[int] = (),
    ) -> Segment:
        """Append a segment of committed tokens and a tree after them.

        Args:
            num_cached: Tokens of the sequence that are in the cache.
            token_ids: Tokens to compute, at least one: committed ones, then those of the tree.
            slots: Slots of the cached tokens and of ``token_ids``.
            needs_logits: Whether the logits of the last committed token and of the tree are wanted.
            tree: Parents of the tree's tokens; see ``Segment``.
        """
        segment = Segment(
            first_row=self.num_rows,
            num_cached=num_cached,
            token_ids=list(token_ids),
            tree=tree,
            slots=slots,
            num_logits=min(len(tree) + 1, len(token_ids)) if needs_logits else 0,
        )
        assert len(slots) == num_cached + segment.num_rows
        self.segments.append(segment)
        self.num_rows += segment.num_rows
        return segment

    @property
    def num_context(self) -> int:
        """Cached tokens that the step reads, over all segments."""
        return sum(segment.num_cached for segment in self.segments)

    def input_ids(self) -> list[int]:
        """Return the tokens of all rows."""
        return [token for segment in self.segments for token in segment.token_ids]

    def positions(self) -> list[int]:
        """Return the positions of all rows."""
        return [position for segment in self.segments for position in segment.positions()]

    def new_slots(self) -> list[int]:
        """Return where each row's keys and values go."""
        return [slot for segment in self.segments for slot in segment.slots[segment.num_cached :]]

    def logit_rows(self) -> list[int]:
        """Return the rows whose logits are wanted, segment by segment."""
        rows: list[int] = []
        for segment in self.segments:
            stop = segment.first_row + segment.num_rows
            rows.extend(range(stop - segment.num_logits, stop))
        return rows


def index_of(slots: Sequence[int], device: torch.device) -> slice | Tensor:
    """Return an index of slots or rows: a slice where they follow each other."""
    first, last = slots[0], slots[-1]
    if last - first + 1 == len(slots) and all(b - a == 1 for a, b in pairwise(slots)):
        return slice(first, last + 1)
    return torch.tensor(slots, device=device)


def _ancestors(parents: Sequence[int]) -> NDArray[np.bool_]:
    """Return which nodes each node sees: itself and its ancestors, ``[nodes, nodes]``."""
    seen = np.eye(len(parents), dtype=np.bool_)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen
