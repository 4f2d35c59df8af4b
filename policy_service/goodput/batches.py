"""Batch sizes in buckets: what is compared or remembered of steps is so by bucket."""

from __future__ import annotations

_LAST = 9


def batch_bucket(batch_size: int) -> int:
    """Return the bucket of a batch size, one an octave: 0 for 1, 1 for 2 and 3, to 9.

    >>> [batch_bucket(size) for size in (1, 2, 3, 4, 32, 100_000)]
    [0, 1, 1, 2, 5, 9]
    """
    return min(_LAST, max(0, batch_size.bit_length() - 1))
