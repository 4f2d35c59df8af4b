"""What steps take: the engine's times, what they take besides, and the waits for drafters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policy_service.goodput.batches import batch_bucket
from policy_service.goodput.waits import Waits
from policy_service.step_times import StepLoad, TimeOf

_RATE = 0.1
_FORGET = 0.003
_LARGEST_RATIO = 2.0
"""What a step may take besides, over its forward: a machine that stood still says nothing."""


@dataclass(slots=True)
class DrafterCall:
    """What a step asked one drafter.

    Attributes:
        gamma: Most tokens that a sequence asked for.
        asked: Sequences.
        wait_ms: How long the step waited.
    """

    gamma: int = 0
    asked: int = 0
    wait_ms: float = 0.0

    def add(self, gamma: int, wait_ms: float) -> None:
        """Add a sequence."""
        self.gamma = max(self.gamma, gamma)
        self.asked += 1
        self.wait_ms = max(self.wait_ms, wait_ms)


class StepCosts:
    """Learns what the engine's step times leave out.

    Attributes:
        waits: For drafters.
    """

    def __init__(self, num_caps: int) -> None:
        """Start without having seen any step."""
        self.waits = Waits(num_caps)
        self._other = {True: _Mean(), False: _Mean()}
        self._rates: dict[int, float] = {}

    @property
    def other_ms(self) -> float:
        """What a plain step takes besides its forward: sampling, committing."""
        kind = not self._other[False].count
        return self._other[kind].value

    @property
    def drafting_ms(self) -> float:
        """What a step with drafts takes besides that, the wait for drafters apart."""
        return max(0.0, self._other[True].value - self.other_ms)

    def rate(self, load: StepLoad) -> float:
        """Return what a millisecond is worth in tokens: what steps of this size lately emitted."""
        rate = self._rates.get(batch_bucket(load.batch_size))
        if rate is None:
            rate = 1.0 / float(self.time_of(load)(np.zeros(1))[0])
        return rate * load.batch_size

    def note_rate(self, load: StepLoad, rate: float) -> None:
        """Say how many tokens a millisecond a step is expected to emit."""
        bucket = batch_bucket(load.batch_size)
        rate /= load.batch_size
        known = self._rates.get(bucket, rate)
        self._rates[bucket] = known + _RATE * (rate - known)

    def time_of(self, load: StepLoad) -> TimeOf:
        """Return a function from drafted rows to a step's milliseconds, drafters' waits apart."""
        other_ms = self.other_ms
        return lambda drafted: load.time_of(drafted) + other_ms

    def observe(
        self, load: StepLoad, verified: int, wait_ms: float, step_ms: float, *, drafting: bool
    ) -> None:
        """Learn from a step; ``drafting``: somebody was asked for a draft."""
        if load.times is None or load.prefill_rows:
            return
        forward_ms = float(load.time_of(np.array([float(verified)]))[0])
        other_ms = min(max(0.0, step_ms - wait_ms - forward_ms), _LARGEST_RATIO * forward_ms)
        self._other[drafting].add(other_ms)
        if not drafting:  # what is not seen any more is forgotten, so that it is tried again
            kind = self._other[True]
            kind.value += _FORGET * (self.other_ms - kind.value)


@dataclass(slots=True)
class _Mean:
    count: int = 0
    value: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(_RATE, 1.0 / self.count) * (value - self.value)
