"""Segments of one shape, computed together: many small attentions cost more than one padded one.

Segments with as many rows and about as long a context form a group. Their keys are gathered side by
side, filled up to the longest context, and one call attends for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from models.batch import PackedBatch, Segment, index_of

_MOST_ROWS = 32
"""Segments of more rows fill the cores by themselves."""


class SegmentGroup:
    """Segments with as many rows each.

    Args:
        segments: The segments, at least one.
        device: Where their tensors go.

    Attributes:
        size: How many segments.
        num_rows: Rows of each.
        longest: Length of the longest context, cached and new.
        rows: Their rows in the pack, segment by segment.
        context: How to find their keys, segment by segment, filled up, ``size * longest`` of them.
    """

    def __init__(self, segments: Sequence[Segment], device: torch.device) -> None:
        self._segments = segments
        self.size = len(segments)
        self.num_rows = segments[0].num_rows
        self.longest = max(len(one.slots) for one in segments)
        rows = [one.first_row + row for one in segments for row in range(self.num_rows)]
        self.rows = index_of(rows, device)
        self.context = segments[0].context(device) if self.size == 1 else self._filled(device)
        self._masks: dict[tuple[int | None, int, torch.dtype], Tensor | None] = {}

    def mask(
        self, window: int | None, device: torch.device, dtype: torch.dtype, group: int
    ) -> Tensor | None:
        """Return what to add to the scores, ``[size, 1, group * num_rows, longest]``, or None."""
        key = (window, group, dtype)
        if key not in self._masks:
            self._masks[key] = self._mask(window, device, dtype, group)
        return self._masks[key]

    def _mask(
        self, window: int | None, device: torch.device, dtype: torch.dtype, group: int
    ) -> Tensor | None:
        masks = [one.mask(window, device, dtype, group) for one in self._segments]
        if self.size == 1:
            return None if masks[0] is None else masks[0][None, None]
        if all(mask is None for mask in masks) and not any(map(self._missing, self._segments)):
            return None
        shape = (self.size, 1, group * self.num_rows, self.longest)
        filled = torch.full(shape, float("-inf"), device=device, dtype=dtype)
        for index, (one, mask) in enumerate(zip(self._segments, masks, strict=True)):
            filled[index, 0, :, : len(one.slots)] = 0 if mask is None else mask
        return filled

    def _filled(self, device: torch.device) -> Tensor:
        slots = [[*one.slots, *one.slots[-1:] * self._missing(one)] for one in self._segments]
        return torch.tensor(slots, device=device).flatten()

    def _missing(self, segment: Segment) -> int:
        return self.longest - len(segment.slots)


def grouped(batch: PackedBatch, device: torch.device) -> list[SegmentGroup]:
    """Return all segments of a step in groups; made once a step.

    Contexts within a group differ by less than a factor of two.
    """
    if batch.groups is None:
        alike: dict[tuple[int, int, int], list[Segment]] = defaultdict(list)
        for index, one in enumerate(batch.segments):
            # Long segments stay alone, by their own number.
            alone = index + 1 if one.num_rows > _MOST_ROWS else 0
            alike[one.num_rows, len(one.slots).bit_length(), alone].append(one)
        batch.groups = [SegmentGroup(segments, device) for segments in alike.values()]
    return batch.groups
