"""A tree's rows, computed depth by depth: each sees the context and its own ancestors.

The engine computes a whole tree in one step; a draft model computes one depth a step, and those
before it are in the cache. So here a segment's cached tokens are a context, which every row sees,
and nodes of the tree, which only their descendants see. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.batch import PackedBatch, Segment


@dataclass(slots=True)
class BranchSegment(Segment):
    """Rows of a tree of which earlier rows are in the cache, after the context's.

    Attributes:
        parents: Parents of all the tree's rows, cached and new, as rows of the tree, smaller than
            their own; -1 is the last token of the context.
    """

    parents: Sequence[int] = ()

    @property
    def num_context(self) -> int:
        """Cached tokens before the tree."""
        return self.num_cached + self.num_rows - len(self.parents)

    def positions(self) -> list[int]:
        """Return the position of each new row; siblings share one."""
        return self._tree_positions()[-self.num_rows :]

    def _tree_positions(self) -> list[int]:
        positions: list[int] = []
        for parent in self.parents:
            positions.append(positions[parent] + 1 if parent >= 0 else self.num_context)
        return positions

    def _visible(self, window: int | None) -> NDArray[np.bool_]:
        visible = np.ones((self.num_rows, self.num_cached + self.num_rows), dtype=np.bool_)
        visible[:, self.num_context :] = _ancestors(self.parents)[-self.num_rows :]
        if window is not None:
            tree = np.array(self._tree_positions())
            keys = np.concatenate([np.arange(self.num_context), tree])
            visible &= tree[-self.num_rows :, None] - keys[None, :] < window
        return visible


def add_branches(
    batch: PackedBatch, token_ids: Sequence[int], parents: Sequence[int], slots: list[int]
) -> None:
    """Append the last rows of a tree, of which all logits are wanted.

    Args:
        batch: Where to.
        token_ids: Tokens of the new rows, the tree's last.
        parents: Of all the tree's rows; see ``BranchSegment``.
        slots: Slots of the context's tokens and of all the tree's rows.
    """
    batch.segments.append(
        BranchSegment(
            first_row=batch.num_rows,
            num_cached=len(slots) - len(token_ids),
            token_ids=list(token_ids),
            tree=(),
            slots=slots,
            num_logits=len(token_ids),
            parents=parents,
        )
    )
    batch.num_rows += len(token_ids)


def _ancestors(parents: Sequence[int]) -> NDArray[np.bool_]:
    """Return which rows each row sees: itself and its ancestors, ``[rows, rows]``."""
    seen = np.eye(len(parents), dtype=np.bool_)
    for row, parent in enumerate(parents):
        if parent >= 0:
            seen[row] |= seen[parent]
    return seen
