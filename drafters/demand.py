"""Whether a drafter that has no worker should be given one. Pure: counts and time are passed in.

With ``min_replicas: 0`` a drafter that is idle or of no use ends with no worker, and replies are
decoded without it. Nobody calls a worker that is not there, so it is the callers who must say that
they would: each Verifier asks for a worker when drafts were wanted and not had.
"""

from __future__ import annotations

from dataclasses import dataclass

USELESS_REST_S = 600.0
"""A drafter that was of no use is not asked for again before so long."""
MIN_ASKED = 50
"""Drafts after which a drafter may be called of no use."""


@dataclass(frozen=True, slots=True)
class DrafterCounts:
    """What a Verifier saw of one drafter since it started.

    Attributes:
        num_workers: Workers there are.
        is_known: Whether there ever was one, so that its drafts can be wanted.
        num_missed: Drafts wanted while no worker was there.
        num_asked: Drafts had, empty ones included.
        num_useful: Drafts of which something was accepted.
    """

    num_workers: int
    is_known: bool
    num_missed: int
    num_asked: int
    num_useful: int


class Demand:
    """Decides for one drafter.

    Args:
        min_useful_share: Share of drafts that must be of use.
    """

    def __init__(self, min_useful_share: float) -> None:
        self._min_useful_share = min_useful_share
        self._came: DrafterCounts | None = None
        self._num_missed = 0
        self._rests_until = float("-inf")

    def wants(self, counts: DrafterCounts, now: float) -> bool:
        """Return whether to ask for a worker now.

        So it is where drafts were wanted since the last look, and where the drafter has never been
        seen, because the learners do not try what they do not know. After a stay in which too few
        drafts were of use, only when it has rested.

        Args:
            counts: What is known now.
            now: Seconds from any start.
        """
        num_missed, self._num_missed = self._num_missed, counts.num_missed
        if counts.num_workers > 0:
            self._came = self._came or counts
            return False
        if self._came is not None:
            self._note_stay(self._came, counts, now)
            self._came = None
        is_wanted = not counts.is_known or counts.num_missed > num_missed
        return is_wanted and now >= self._rests_until

    def _note_stay(self, came: DrafterCounts, left: DrafterCounts, now: float) -> None:
        num_asked = left.num_asked - came.num_asked
        num_useful = left.num_useful - came.num_useful
        if num_asked >= MIN_ASKED and num_useful < self._min_useful_share * num_asked:
            self._rests_until = now + USELESS_REST_S
