"""Which counts ``goodput`` keeps of drafts, and their names among the pool's cells.

For each context, drafter and bucket of the draft's score there are ``NUM_COLUMNS`` pairs:

* column 0: drafts that came, and the sum of their lengths; a draft as long as it was asked for
  counts as ``MAX_DEPTH`` long, for it might have gone on;
* columns 1 to ``MAX_DEPTH``: best tokens at this depth that were offered, and that were accepted;
* the last ``MAX_RANK``: the same of second, third and further siblings in trees, at any depth.

A token is offered if it was verified and all those above it were accepted: so the quotient is a
conditional probability, and what was cut or lies below a rejected token is censored, not rejected.
Drafts that were empty have a bucket of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from policy_service.api import ArmCounts

NUM_BUCKETS = 8
EMPTY = NUM_BUCKETS
"""Bucket of empty drafts."""
MAX_DEPTH = 16
MAX_RANK = 3
NUM_COLUMNS = 1 + MAX_DEPTH + MAX_RANK

Counts = NDArray[np.int64]
"""``[..., NUM_BUCKETS + 1, NUM_COLUMNS, 2]``: offered and accepted."""

_CELL = re.compile(r"(.+)/(?:score(\d+)|empty)/depth(\d+)/rank(\d+)")


@lru_cache(maxsize=65_536)
def score_bucket(score: float) -> int:
    """Return the bucket of a draft's score, two an octave, 0 to 15; 4 begins at a score of 1.

    It is the drafters' own definition, by which they name their shadow counts.

    >>> [score_bucket(score) for score in (0.0, 0.5, 1.0, 2.0, 3.0, 16.0, 1e9)]
    [0, 2, 4, 6, 7, 12, 15]
    """
    if not score > 0.0:
        return 0
    return min(15, max(0, math.floor(2.0 * math.log2(min(score, 1e9))) + 4))


def bucket_of(score: float) -> int:
    """Return the bucket that counts go by: one an octave, 0 to 7."""
    return score_bucket(score) // 2


def column_of(depth: int, rank: int) -> int:
    """Return the column of a draft's token; its depth counts from 1, its rank from 0."""
    return min(depth, MAX_DEPTH) if rank == 0 else MAX_DEPTH + min(rank, MAX_RANK)


@lru_cache(maxsize=4096)
def columns_of(parents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the column of each token of a tree.

    >>> columns_of((-1, -1, 0))
    (1, 17, 2)
    """
    depths: list[int] = []
    children: dict[int, int] = {}
    columns = []
    for parent in parents:
        rank = children.get(parent, 0)
        children[parent] = rank + 1
        depths.append(1 if parent < 0 else depths[parent] + 1)
        columns.append(column_of(depths[-1], rank))
    return tuple(columns)


def cell_name(drafter: str, bucket: int, column: int) -> str:
    """Return the name that stands for an arm in the pool's cells.

    >>> cell_name("suffix", 2, 1), cell_name("suffix", EMPTY, 0)
    ('suffix/score4/depth1/rank0', 'suffix/empty/depth0/rank0')
    """
    score = "empty" if bucket == EMPTY else f"score{2 * bucket}"
    depth, rank = (column, 0) if column <= MAX_DEPTH else (1, column - MAX_DEPTH)
    return f"{drafter}/{score}/depth{depth}/rank{rank}"


@lru_cache(maxsize=65_536)
def parse_cell(name: str) -> tuple[str, int, int] | None:
    """Return the drafter, bucket and column of a name; None if it names an arm or is too deep.

    >>> parse_cell("suffix/score5/depth1/rank0"), parse_cell("suffix:4")
    (('suffix', 2, 1), None)
    """
    match = _CELL.fullmatch(name) if "/" in name else None
    if match is None:
        return None
    drafter, score, depth, rank = match[1], match[2], int(match[3]), int(match[4])
    bucket = EMPTY if score is None else int(score) // 2
    if bucket > EMPTY or depth > MAX_DEPTH or rank > MAX_RANK:
        return None
    return drafter, bucket, column_of(depth, rank)


def named_counts(drafter: str, counts: Counts) -> Iterator[tuple[str, ArmCounts]]:
    """Yield name and counters of every cell of one drafter that is not zero."""
    for bucket, column in np.argwhere(counts[:, :, 0]):
        offered, accepted = (int(count) for count in counts[bucket, column])
        yield (
            cell_name(drafter, int(bucket), int(column)),
            ArmCounts(pulls=offered, reward_tokens=accepted, reward_micros=accepted * 1_000_000),
        )


def offered_tokens(
    parents: Sequence[int], accepted_nodes: Sequence[int], *, has_ended: bool
) -> list[tuple[int, bool]]:
    """Return which tokens of a verified tree were offered, and whether each was accepted.

    Args:
        parents: Of each verified token.
        accepted_nodes: Those accepted, from the root down.
        has_ended: The reply ended with the last of them, so that nothing below it was looked at.

    >>> offered_tokens((-1, -1, 0, 1), (1,), has_ended=False)
    [(0, False), (1, True), (3, False)]
    """
    accepted = set(accepted_nodes)
    open_parents = {-1, *accepted_nodes}
    if has_ended and accepted_nodes:
        open_parents.discard(accepted_nodes[-1])
    return [
        (node, node in accepted) for node, parent in enumerate(parents) if parent in open_parents
    ]
