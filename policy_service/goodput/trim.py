"""Trim: which of a step's drafted tokens are worth verifying. Exact for any time of a step. Pure.

The more a token survives, the more it adds, so of all sets of ``n`` tokens the ``n`` that survive
best add most; and as survival never grows along a draft, they are the first tokens of their drafts.
So it is enough to try every ``n``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policy_service.goodput.rates import Floats
from policy_service.step_times import TimeOf


def trim_step(
    survival: Floats, lengths: NDArray[np.int64], tokens: float, time_of: TimeOf
) -> NDArray[np.int64]:
    """Return how many tokens of each draft to verify, so that tokens per time are most.

    Maximises ``(tokens + sum of survival) / time_of(number of tokens)``; of equal maxima the one
    with fewest tokens.

    Args:
        survival: Of each draft's tokens, ``[num_drafts, longest]``; never growing along a draft.
        lengths: Tokens of each draft, ``[num_drafts]``.
        tokens: What the step emits without drafts.
        time_of: Time by number of tokens; any function.
    """
    exists = np.arange(survival.shape[1]) < lengths[:, None]
    drafts, _ = np.nonzero(exists)
    pooled = survival[exists]
    # Stable: of a draft's equal tokens those above come first, so what is kept is a draft.
    order = np.argsort(-pooled, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(pooled[order], dtype=np.float64)))
    rates = (tokens + sums) / time_of(np.arange(len(sums)))
    best = int(np.argmax(rates))
    return np.bincount(drafts[order[:best]], minlength=len(lengths))
