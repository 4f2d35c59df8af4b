"""How long a step takes, by the rows it computes: seeded at warm-up, learnt online.

A table over row counts, doubling from entry to entry, kept monotone (more rows never take less
time) and read by linear interpolation. Every measured step corrects the entries beside it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping

from models.batch import PackedBatch
from models.paged_model import PagedModel

LEARNING_RATE = 0.1
"""Weight of a new step against the table."""

WARM_UP_ROWS = (1, 2, 4, 8, 16, 32, 64)
_WARM_UP_RUNS = 2


class StepTimeModel:
    """Predicts a step's forward time.

    Args:
        measured_ms: Forward time in milliseconds by rows; at least one entry.
    """

    def __init__(self, measured_ms: Mapping[int, float]) -> None:
        if not measured_ms or min(measured_ms) < 1 or min(measured_ms.values()) <= 0:
            raise ValueError(f"expected positive times by positive rows, got {dict(measured_ms)}")
        self._rows = sorted(measured_ms)
        self._raw_ms = [measured_ms[rows] for rows in self._rows]

    def predict_ms(self, rows: int) -> float:
        """Return the time of a step of ``rows`` rows; beyond the table it goes on in proportion."""
        table = self._monotone()
        right = bisect_left(self._rows, rows)
        if right == len(self._rows):
            return table[-1] * rows / self._rows[-1]
        if right == 0:
            return table[0]
        low, high = self._rows[right - 1], self._rows[right]
        share = (rows - low) / (high - low)
        return table[right - 1] + share * (table[right] - table[right - 1])

    def observe(self, rows: int, forward_ms: float) -> None:
        """Move the entries on both sides of ``rows`` towards a measured time."""
        factor = 1 + LEARNING_RATE * (forward_ms / self.predict_ms(rows) - 1)
        right = min(bisect_left(self._rows, rows), len(self._rows) - 1)
        self._raw_ms[right] *= factor
        if right > 0 and self._rows[right] > rows:
            self._raw_ms[right - 1] *= factor

    def table(self) -> dict[int, float]:
        """Return the monotone table, rows to milliseconds."""
        return dict(zip(self._rows, self._monotone(), strict=True))

    def _monotone(self) -> list[float]:
        longest = 0.0
        result = []
        for value in self._raw_ms:
            longest = max(longest, value)
            result.append(longest)
        return result


def warm_up(model: PagedModel, clock: Callable[[], float] = time.perf_counter) -> StepTimeModel:
    """Measure forwards of a few sizes on an idle model whose cache holds nothing yet."""
    capacity = model.num_pages * model.page_tokens
    measured: dict[int, float] = {}
    for rows in WARM_UP_ROWS:
        if rows > capacity:
            break
        times = []
        for _ in range(_WARM_UP_RUNS):
            batch = PackedBatch()
            batch.add(0, [0] * rows, list(range(rows)), needs_logits=True)
            started = clock()
            model.forward(batch)
            times.append((clock() - started) * 1e3)
        measured[rows] = max(1e-3, min(times))
    return StepTimeModel(measured)
