"""The arms of a fleet as a grid: drafters by largest lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_service.api import NONE, Arm

_MOST_MASKS = 1024


class ArmGrid:
    """Numbers for arms: that of the drafter times the number of lengths, plus that of the length.

    Attributes:
        caps: Largest lengths, ascending.
        drafters: Names, in the order in which they were first seen.
        arms: By number.
    """

    def __init__(self, caps: Sequence[int]) -> None:
        """Start without drafters."""
        self.caps = tuple(sorted(caps))
        self.drafters: list[str] = []
        self.arms: tuple[Arm, ...] = ()
        self._numbers: dict[Arm, int] = {}
        self._masks: dict[int, tuple[tuple[Arm, ...], NDArray[np.bool_]]] = {}

    def add(self, drafter: str) -> int:
        """Add a drafter and return its number."""
        self.drafters.append(drafter)
        self.arms = tuple(Arm(name, cap) for name in self.drafters for cap in self.caps)
        self._numbers = {arm: number for number, arm in enumerate(self.arms)}
        self._masks = {}
        return len(self.drafters) - 1

    def covers(self, arms: Sequence[Arm]) -> bool:
        """Whether all arms are of the grid's lengths, plain decoding among them."""
        return NONE in arms and all(arm.gamma in self.caps or arm == NONE for arm in arms)

    def allowed(
        self, arms: Sequence[tuple[Arm, ...]], rooms: Sequence[int]
    ) -> NDArray[np.bool_] | None:
        """Return which arms each sequence may take, ``[num_sequences, num_arms]``; None for all.

        Args:
            arms: Those of each sequence; most have the very same tuple.
            rooms: Most tokens that each can draft. The shortest arm is always taken to fit.
        """
        first = arms[0]
        if all(one is first for one in arms):
            masks = np.broadcast_to(self._mask(first), (len(arms), len(self.arms)))
        else:
            masks = np.array([self._mask(one) for one in arms])
        if min(rooms) >= self.caps[-1]:
            return None if masks.all() else masks
        most = np.maximum(np.array(rooms), self.caps[0])
        fits = np.tile(np.array(self.caps), len(self.drafters)) <= most[:, None]
        result: NDArray[np.bool_] = masks & fits
        return result

    def _mask(self, arms: tuple[Arm, ...]) -> NDArray[np.bool_]:
        known = self._masks.get(id(arms))
        if known is None:
            mask = np.zeros(len(self.arms), np.bool_)
            mask[[self._numbers[arm] for arm in arms if arm in self._numbers]] = True
            if len(self._masks) >= _MOST_MASKS:
                self._masks = {}
            known = self._masks[id(arms)] = (arms, mask)  # the tuple is kept, so its id is its own
        return known[1]
