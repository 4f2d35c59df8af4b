"""Acceptance, scores and lengths of drafts in a context, shrunk from the root down. Pure.

Sums of the root are mixed with a weak guess, and each narrower context's with ``strength`` counts
of what its parent says: ``c = (accepted + strength * parent) / (offered + strength)``. A cell of
the root is first guessed from its score bucket and its column (as if the two moved the log odds
independently), so that few counts say something of all cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_service.goodput.cells import MAX_DEPTH, NUM_BUCKETS, NUM_COLUMNS

Floats = NDArray[np.float32]

_GUESS = 0.5
"""Acceptance where nothing is known: bold enough that every drafter is tried."""
_SIBLING_GUESS = 0.15
_GUESS_STRENGTH = 5.0
_EMPTY_GUESS = 0.25
"""Share of empty drafts where nothing is known."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a context says of its drafters' drafts.

    Attributes:
        logits: Log odds of acceptance, ``[num_drafters, NUM_BUCKETS, NUM_COLUMNS]``.
        shares: How often a draft's score is in each bucket, empty drafts last,
            ``[num_drafters, NUM_BUCKETS + 1]``.
        lengths: Mean length of drafts, ``[num_drafters, NUM_BUCKETS]``.
    """

    logits: Floats
    shares: Floats
    lengths: Floats


def logit(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log odds."""
    result: NDArray[np.float64] = np.log(probability / (1.0 - probability))
    return result


def expit(log_odds: Floats) -> Floats:
    """Return the probability with these log odds."""
    result: Floats = np.float32(1.0) / (np.float32(1.0) + np.exp(-log_odds))
    return result


def shrunk_rates(levels: Sequence[NDArray[np.float64]], strength: float) -> Rates:
    """Return the rates of the last of ``levels``.

    Args:
        levels: Counts ``[num_drafters, NUM_BUCKETS + 1, NUM_COLUMNS, 2]`` of a context's parents,
            from the root down, and its own; each includes the next.
        strength: Counts of the parent mixed into each.
    """
    root = levels[0]
    rates = _root_acceptance(root[:, :NUM_BUCKETS])
    shares = _mixed_shares(root[:, :, 0, 0], _guessed_shares(), _GUESS_STRENGTH)
    lengths = (root[:, :NUM_BUCKETS, 0, 1] + MAX_DEPTH) / (root[:, :NUM_BUCKETS, 0, 0] + 1.0)
    for level in levels[1:]:
        offered, accepted = level[:, :NUM_BUCKETS, :, 0], level[:, :NUM_BUCKETS, :, 1]
        rates = (accepted + strength * rates) / (offered + strength)
        shares = _mixed_shares(level[:, :, 0, 0], shares, strength)
        lengths = (accepted[:, :, 0] + strength * lengths) / (offered[:, :, 0] + strength)
    rates = np.clip(rates, 1e-4, 1 - 1e-4)  # column 0 counts lengths and is nobody's probability
    return Rates(
        logit(rates).astype(np.float32), shares.astype(np.float32), lengths.astype(np.float32)
    )


def _mixed(counts: NDArray[np.float64], guess: NDArray[np.float64] | float) -> NDArray[np.float64]:
    mixed: NDArray[np.float64] = (counts[..., 1] + _GUESS_STRENGTH * guess) / (
        counts[..., 0] + _GUESS_STRENGTH
    )
    return mixed


def _root_acceptance(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the acceptance of every cell of the root, ``[num_drafters, buckets, columns]``."""
    best = counts[:, :, 1 : MAX_DEPTH + 1]
    overall = _mixed(best.sum(axis=(1, 2)), _GUESS)[:, None]
    by_bucket = _mixed(best.sum(axis=2), overall)
    guesses = np.repeat(overall, NUM_COLUMNS, axis=1)
    guesses[:, MAX_DEPTH + 1 :] = _SIBLING_GUESS
    by_column = _mixed(counts.sum(axis=1), guesses)
    by_column[:, 0] = _GUESS
    moved = logit(by_bucket)[:, :, None] + (logit(by_column) - logit(overall))[:, None, :]
    guess = 1.0 / (1.0 + np.exp(-moved))
    result = _mixed(counts, guess)
    result[:, :, 0] = _GUESS
    return result


def _guessed_shares() -> NDArray[np.float64]:
    shares = np.full(NUM_BUCKETS + 1, (1 - _EMPTY_GUESS) / NUM_BUCKETS)
    shares[-1] = _EMPTY_GUESS
    return shares


def _mixed_shares(
    drafts: NDArray[np.float64], shares: NDArray[np.float64], strength: float
) -> NDArray[np.float64]:
    total = drafts.sum(axis=1, keepdims=True)
    mixed: NDArray[np.float64] = (drafts + strength * shares) / (total + strength)
    return mixed
