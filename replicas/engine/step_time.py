"""How long a step takes: seeded at warm-up, learnt online, exported to the policy.

Three parts: a table over row counts, doubling from entry to entry and kept monotone (more rows
never take less time); what each further sequence adds; what each cached token adds. Every measured
step corrects each part by the part's share in what was predicted.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from models.batch import PackedBatch
from models.paged_model import PagedModel
from policy_service.step_times import StepTimes

LEARNING_RATE = 0.1
"""Weight of a new step against what is known."""

WARM_UP_ROWS = (1, 2, 4, 8, 16, 32, 64)
_WARM_UP_SEQUENCES = 8
_WARM_UP_CONTEXT = 1024
_WARM_UP_RUNS = 2
_LEAST_MS = 1e-3
_LARGEST_RATIO = 4.0
"""Most that one step may be off: a machine that stood still for a moment says nothing of steps."""


class StepTimeModel:
    """Predicts a step's forward time.

    Args:
        measured_ms: Forward time in milliseconds by rows, of one sequence with nothing cached; at
            least one entry.
        sequence_ms: What each further sequence adds.
        cached_token_ms: What each cached token adds.

    Attributes:
        times: What is known now.
    """

    def __init__(
        self,
        measured_ms: Mapping[int, float],
        sequence_ms: float = 0.0,
        cached_token_ms: float = 0.0,
    ) -> None:
        if not measured_ms or min(measured_ms) < 1 or min(measured_ms.values()) <= 0:
            raise ValueError(f"expected positive times by positive rows, got {dict(measured_ms)}")
        self._rows = sorted(measured_ms)
        self._raw_ms = [measured_ms[rows] for rows in self._rows]
        self._sequence_ms = sequence_ms
        self._cached_token_ms = cached_token_ms
        self.times = self._monotone()

    def predict_ms(self, rows: int, sequences: int = 1, cached: int = 0) -> float:
        """Return the time of a step; see ``StepTimes.predict_ms``."""
        return self.times.predict_ms(rows, sequences, cached)

    def observe(self, rows: int, sequences: int, cached: int, forward_ms: float) -> None:
        """Correct what is known by a measured step."""
        predicted = self.predict_ms(rows, sequences, cached)
        ratio = min(forward_ms / predicted, _LARGEST_RATIO)
        change = LEARNING_RATE * (ratio - 1) / predicted
        self._correct_table(rows, 1 + change * self.times.table_ms(rows))
        self._sequence_ms *= 1 + change * self._sequence_ms * max(0, sequences - 1)
        self._cached_token_ms *= 1 + change * self._cached_token_ms * cached
        self.times = self._monotone()

    def _correct_table(self, rows: int, factor: float) -> None:
        """Multiply the entries on both sides of ``rows``."""
        right = min(bisect_left(self._rows, rows), len(self._rows) - 1)
        self._raw_ms[right] *= factor
        if right > 0 and self._rows[right] > rows:
            self._raw_ms[right - 1] *= factor

    def table(self) -> dict[int, float]:
        """Return the monotone table, rows to milliseconds."""
        return dict(zip(self.times.rows, self.times.ms, strict=True))

    def _monotone(self) -> StepTimes:
        longest = 0.0
        result = []
        for value in self._raw_ms:
            longest = max(longest, value)
            result.append(longest)
        return StepTimes(tuple(self._rows), tuple(result), self._sequence_ms, self._cached_token_ms)


def warm_up(
    model: PagedModel,
    clock: Callable[[], float] = time.perf_counter,
    row_counts: Sequence[int] = WARM_UP_ROWS,
) -> StepTimeModel:
    """Measure forwards of a few shapes on an idle model whose cache holds nothing yet."""
    capacity = model.num_pages * model.page_tokens

    def measured_ms(sequences: int, rows: int, cached: int = 0) -> float:
        times = []
        for _ in range(_WARM_UP_RUNS):
            batch = PackedBatch()
            for index in range(sequences):
                first = index * (cached + rows)
                slots = list(range(first, first + cached + rows))
                batch.add(cached, [0] * rows, slots, needs_logits=True)
            started = clock()
            model.forward(batch)
            times.append((clock() - started) * 1e3)
        return max(_LEAST_MS, min(times))

    table = {rows: measured_ms(1, rows) for rows in row_counts if rows <= capacity}
    sequences = min(_WARM_UP_SEQUENCES, capacity)
    context = min(_WARM_UP_CONTEXT, capacity - 1)
    alone = StepTimes(tuple(table), tuple(table.values()))
    more_ms = measured_ms(sequences, 1) - alone.predict_ms(sequences)
    longer_ms = measured_ms(1, 1, context) - alone.predict_ms(1)
    return StepTimeModel(
        table,
        max(_LEAST_MS, more_ms) / max(1, sequences - 1),
        max(_LEAST_MS, longer_ms) / max(1, context),
    )
