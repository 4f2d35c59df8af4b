"""Arrays that grow."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

ScalarT = TypeVar("ScalarT", bound=np.generic)


def grown(values: NDArray[ScalarT], *sizes: int) -> NDArray[ScalarT]:
    """Return an array whose first axes have at least these sizes, filled up with zeros.

    >>> grown(np.ones((1, 1)), 2).tolist()
    [[1.0], [0.0]]
    """
    more = [(0, max(0, size - old)) for size, old in zip(sizes, values.shape, strict=False)]
    widths = more + [(0, 0)] * (values.ndim - len(more))
    result: NDArray[Any] = np.pad(values, widths) if any(after for _, after in widths) else values
    return result
