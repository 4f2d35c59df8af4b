"""From continuations to drafts: the trie of their prefixes, weighted by how often each occurs.

Pure. Continuations come as columns ``[depth, num_continuations]`` in lexicographic order, as
``Datastore.continuations`` gives them; so a node of the trie is a run of neighbours that agree up
to its depth, and its weight is the length of the run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drafters.api import ROOT


def best_tree(
    continuations: NDArray[np.int64], separator: int, most: int
) -> tuple[list[int], list[int]]:
    """Return token ids and parents of the ``most`` heaviest nodes, heaviest first.

    Of equals the shallower comes first, then the one that comes first in lexicographic order; so
    parents come first, and every smaller tree is a prefix of the larger one.
    """
    num_rows = continuations.shape[1]
    is_first = np.ones(continuations.shape, dtype=np.bool_)
    changes = continuations[:, 1:] != continuations[:, :-1]
    np.logical_or.accumulate(changes, axis=0, out=is_first[:, 1:])
    starts = np.flatnonzero(is_first)  # by depth, then in lexicographic order
    weights = np.diff(starts, append=continuations.size)
    token_ids = continuations.ravel()[starts]
    is_token = token_ids != separator
    starts, weights, token_ids = starts[is_token], weights[is_token], token_ids[is_token]
    chosen = _heaviest(weights, most)
    return token_ids[chosen].tolist(), _parents(starts[chosen], num_rows)


def best_chain(continuations: NDArray[np.int64], separator: int) -> list[int]:
    """Return the tokens on the way from the root that goes to the heaviest child each time.

    Of equally heavy ones it takes the smallest token id.
    """
    chain: list[int] = []
    low, high = 0, continuations.shape[1]
    for column in continuations:
        part = column[low:high]
        ends = [*(np.flatnonzero(part[1:] != part[:-1]) + 1).tolist(), len(part)]
        runs = list(zip([0, *ends], ends, strict=False))
        if part[-1] == separator:  # it comes last, as it is larger than any token
            runs.pop()
        if not runs:
            break
        start, end = max(runs, key=lambda run: run[1] - run[0])
        low, high = low + start, low + end
        chain.append(int(column[low]))
    return chain


def _heaviest(weights: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the indices of the ``most`` largest weights, largest first, equals in order."""
    if len(weights) > most:
        least = np.partition(weights, len(weights) - most)[len(weights) - most]
        above = np.flatnonzero(weights > least)
        equal = np.flatnonzero(weights == least)[: most - len(above)]
        candidates = np.concatenate([above, equal])
    else:
        candidates = np.arange(len(weights))
    by_weight = np.argsort(-weights[candidates], kind="stable")
    chosen: NDArray[np.int64] = candidates[by_weight]
    return chosen


def _parents(starts: NDArray[np.int64], num_rows: int) -> list[int]:
    """Return each node's parent: the one node of the depth above whose run holds its start."""
    by_start = np.argsort(starts)
    above = starts - num_rows
    index = np.searchsorted(starts[by_start], above, side="right") - 1
    parents: list[int] = np.where(above < 0, ROOT, by_start[index]).tolist()
    return parents
