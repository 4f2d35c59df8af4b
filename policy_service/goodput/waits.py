"""How long steps wait for drafters, as measured: by drafter, largest length and sequences asked.

A running mean of what steps waited, from asking to having all drafts of the drafter, transport and
queue included, whatever came of them; and a running regression on how many sequences were asked,
for some drafters draft for one after the other and some for all at once. Until that is known, half
of the wait is taken to be for the sequences. What was never measured is taken from the nearest
length that was; a drafter that was never asked is taken to answer at once, so that it is asked.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from policy_service.goodput.arrays import grown

_RATE = 0.05
_FORGET = 0.001
_LARGEST_RATIO = 4.0
_PRIOR_WEIGHT = 0.02
_COUNT, _WAIT, _ASKED, _SPREAD, _JOINT = range(5)


class Waits:
    """Measured waits of some drafters."""

    def __init__(self, num_caps: int) -> None:
        """Start without drafters.

        Args:
            num_caps: Largest lengths that are told apart, in ascending order.
        """
        self._moments = np.zeros((0, num_caps, 5))
        self._known: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def grow(self, num_drafters: int) -> None:
        """Make room for further drafters."""
        self._moments = grown(self._moments, num_drafters)
        self._known = None

    def forget(self, drafter: int) -> None:
        """Forget what was measured of a drafter."""
        self._moments[drafter] = 0
        self._known = None

    def observe(self, drafter: int, cap: int, asked: int, wait_ms: float) -> None:
        """Count a step's wait; one that is far off counts only as far as is credible."""
        count, wait, mean, spread, joint = self._moments[drafter, cap].tolist()
        if count:
            wait_ms = min(wait_ms, _LARGEST_RATIO * wait * max(1.0, asked / mean) + 1.0)
        weight = max(_RATE, 1.0 / (count + 1.0))
        off, late = asked - mean, wait_ms - wait
        self._moments[drafter, cap] = (
            count + 1.0,
            wait + weight * late,
            mean + weight * off,
            (1 - weight) * (spread + weight * off * off),
            (1 - weight) * (joint + weight * off * late),
        )
        self._known = None

    def forget_some(self, asked: Collection[int]) -> None:
        """Forget a little of the waits for drafters other than these, so that they are tried again.

        To be called after each step.
        """
        idle = [drafter for drafter in range(len(self._moments)) if drafter not in asked]
        if idle:
            self._moments[idle, :, _WAIT] *= 1 - _FORGET
            self._moments[idle, :, _JOINT] *= 1 - _FORGET
            self._known = None

    def shared_among(self, num_sequences: int) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Return what each drafter is waited for, as far as it does not depend on what it is asked.

        And what a sequence adds, by length. What a longer draft takes in any case is shared out
        among the sequences of the step.

        Returns:
            Milliseconds, ``[num_drafters]`` and ``[num_drafters, num_caps]``.
        """
        if self._known is None:
            moments = self._moments
            if not moments[..., _COUNT].all():
                moments = np.array([_filled(caps) for caps in moments]).reshape(moments.shape)
            wait, mean = moments[..., _WAIT], np.maximum(moments[..., _ASKED], 1.0)
            prior = _PRIOR_WEIGHT * mean**2
            joint = moments[..., _JOINT] + prior * 0.5 * wait / mean
            slope = np.clip(joint / (moments[..., _SPREAD] + prior), 0.0, wait / mean)
            self._known = wait - slope * mean, slope
        fixed, slope = self._known
        least = fixed.min(axis=1)
        longer = (fixed - least[:, None]) / num_sequences
        return least, (slope + longer).astype(np.float32)


def _filled(caps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one drafter's moments by length, those of the nearest length where there are none."""
    known = np.flatnonzero(caps[:, _COUNT])
    if not len(known):
        return caps
    distances = np.abs(np.arange(len(caps))[:, None] - known)
    nearest: NDArray[np.float64] = caps[known[np.argmin(distances, axis=1)]]
    return nearest
