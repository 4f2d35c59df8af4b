"""Survival: the probability that a draft's token is accepted with all those above it. Pure.

The acceptance of a token is that of its context and cell, with the prompt's own shift on the log
odds; survival is the product along the path, so it never grows from a token to one below it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_service.goodput.cells import MAX_DEPTH, columns_of
from policy_service.goodput.rates import Floats, expit


def depth_columns(longest: int) -> NDArray[np.intp]:
    """Return the column of each token of a chain; the deepest stands for those below it."""
    return np.minimum(np.arange(1, longest + 1), MAX_DEPTH)


def chain_survival(logits: Floats, shifts: Floats) -> Floats:
    """Return the survival of each token of a chain.

    Args:
        logits: Of the cells along it, ``[..., longest]``.
        shifts: The prompt's, ``[...]``.
    """
    result: Floats = np.cumprod(expit(logits + shifts[..., None]), axis=-1)
    return result


def tree_survival(parents: tuple[int, ...], acceptance: Sequence[float]) -> list[float]:
    """Return the survival of each token of a tree, in its order and never above that of one before.

    A tree is cut after some token of its list, so a token cannot be had without those before it:
    where a token survives better than one before it, it is taken to survive as badly.

    Args:
        parents: Of each token.
        acceptance: Of each column.
    """
    survival: list[float] = []
    for parent, column in zip(parents, columns_of(parents), strict=True):
        above = 1.0 if parent < 0 else survival[parent]
        survival.append(above * acceptance[column])
    lowest = 1.0
    for node, value in enumerate(survival):
        lowest = min(lowest, value)
        survival[node] = lowest
    return survival
