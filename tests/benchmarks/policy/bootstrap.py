"""Ratios of two policies on the same prompts, with intervals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Ratio:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


def paired_ratio(
    prompts: Sequence[str],
    above: NDArray[np.float64],
    below: NDArray[np.float64],
    seed: int = 0,
) -> Ratio:
    """Return the sum of ``above`` over the sum of ``below``, with a paired bootstrap over prompts.

    A prompt is drawn with all of its replays, in both sums: those differ by less than prompts do.

    Args:
        prompts: Which prompt each entry is of, ``[num_replays]``.
        above: Of each replay, ``[num_replays]``.
        below: The same.
        seed: Of the draws.

    >>> paired_ratio(["a", "b"], np.array([2.0, 4.0]), np.array([1.0, 2.0]))
    Ratio(value=2.0, low=2.0, high=2.0)
    """
    names = {name: index for index, name in enumerate(dict.fromkeys(prompts))}
    owner = [names[name] for name in prompts]
    sums = [np.bincount(owner, weights, len(names)) for weights in (above, below)]
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), NUM_DRAWS)
    drawn = (weights @ sums[0]) / (weights @ sums[1])
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Ratio(float(sums[0].sum() / sums[1].sum()), float(low), float(high))
