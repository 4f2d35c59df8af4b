"""What a draft is worth before it is there, by its largest length and a row's price. Pure.

A draft of at most ``k`` tokens will have some score, or be empty; Trim will then verify those of
its tokens that survive better than a row costs. So, over the buckets ``m`` of the score::

    tokens(k, price) = sum_m share_m * (sum of survival of its first n_m tokens)
    rows(k, price)   = sum_m share_m * n_m,    n_m = min(k, length_m, tokens surviving above price)

The price is in tokens a row. Tables over a few prices make Ask a matter of looking up.
"""

from __future__ import annotations

import numpy as np

from policy_service.goodput.cells import NUM_BUCKETS
from policy_service.goodput.rates import Floats
from policy_service.goodput.survival import chain_survival

PRICES = np.array([0.0, 0.12, 0.35, 0.65], np.float32)
"""Prices of the tables, in tokens a row."""


def draft_tables(
    logits: Floats, shifts: Floats, shares: Floats, lengths: Floats, caps: Floats
) -> tuple[Floats, Floats]:
    """Return expected accepted tokens and verified rows, each ``[num, num_caps, num_prices]``.

    Args:
        logits: Log odds of acceptance along a chain, ``[num, NUM_BUCKETS, longest]``.
        shifts: The prompts', ``[num]``.
        shares: How often each bucket comes, ``[num, NUM_BUCKETS + 1]``.
        lengths: Mean lengths of drafts, ``[num, NUM_BUCKETS]``.
        caps: Largest lengths, ``[num_caps]``.
    """
    survival = chain_survival(logits, np.repeat(shifts[:, None], NUM_BUCKETS, axis=1))
    num, _, longest = survival.shape
    worth = (survival[..., None] > PRICES).sum(axis=2, dtype=np.int32)
    most = np.minimum(np.rint(lengths)[:, :, None], caps).astype(np.int32)
    nodes = np.minimum(worth[:, :, None, :], most[..., None])
    sums = np.zeros((num * NUM_BUCKETS, longest + 1), np.float32)
    np.cumsum(survival.reshape(-1, longest), axis=1, out=sums[:, 1:])
    starts = np.arange(num * NUM_BUCKETS, dtype=np.int32) * (longest + 1)
    flat = nodes.reshape(len(starts), len(caps) * len(PRICES)) + starts[:, None]
    gained = sums.ravel()[flat].reshape(num, NUM_BUCKETS, flat.shape[1])
    needed = nodes.reshape(gained.shape).astype(np.float32)
    weights = shares[:, None, :NUM_BUCKETS]
    shape = (num, len(caps), len(PRICES))
    return (weights @ gained).reshape(shape), (weights @ needed).reshape(shape)
