"""Shadow scores: what a drafter would have proposed, compared with what came; messages and counts.

A sampled request is *followed*: its emitted tokens go to the drafter although it is not asked for
drafts, and the drafter replays them (``drafters.replay``). What it counts is additive. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

NUM_SCORE_BUCKETS = 16
MAX_DEPTH = 16
"""Deeper tokens of a draft are not counted."""
MAX_RANK = 3
"""Siblings of a higher rank count as of this one."""


class ShadowCell(NamedTuple):
    """Which tokens of drafts a count is about.

    Attributes:
        score_bucket: ``score_bucket`` of the draft's score.
        depth: Tokens from the end of the context, 1 for the first.
        rank: Place among its siblings, 0 for the first.
    """

    score_bucket: int
    depth: int
    rank: int


ShadowCounts = Mapping[ShadowCell, tuple[int, int]]
"""For each cell how many tokens were offered and how many of them came.

A token is offered if all those above it came, so the quotient is a conditional probability."""


@dataclass(frozen=True, slots=True)
class FollowedTokens:
    """Tokens of a sequence that a drafter follows.

    Attributes:
        session_id: The sequence.
        position: Length of its context before them; 0: they are a context's beginning, and the
            drafter starts to follow it.
        token_ids: The tokens.
        tenant: Whose request it is.
        is_last: No more will come.
    """

    session_id: str
    position: int
    token_ids: tuple[int, ...]
    tenant: str = ""
    is_last: bool = False


def score_bucket(score: float) -> int:
    """Return the bucket of a draft's score, two an octave, 0 to 15; 4 begins at a score of 1.

    >>> [score_bucket(score) for score in (0.0, 0.5, 1.0, 2.0, 3.0, 16.0, 1e9)]
    [0, 2, 4, 6, 7, 12, 15]
    """
    if not score > 0.0:
        return 0
    return min(NUM_SCORE_BUCKETS - 1, max(0, math.floor(2.0 * math.log2(min(score, 1e9))) + 4))


def add_counts(total: dict[ShadowCell, tuple[int, int]], more: ShadowCounts) -> None:
    """Add counts to a total."""
    for cell, (offered, accepted) in more.items():
        old_offered, old_accepted = total.get(cell, (0, 0))
        total[cell] = (old_offered + offered, old_accepted + accepted)
