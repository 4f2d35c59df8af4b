"""How a prompt differs from its context: a shift on the log odds of acceptance, per drafter. Pure.

Prompts differ in how well a drafter does on them, and mostly at all scores and depths alike. So a
prompt has one number a drafter, with a Gaussian prior around 0 whose precision is that of ``kappa``
tokens (empirical Bayes: ``Strength``), and learns it token by token, as an extended Kalman filter
does for logistic regression::

    information = discount * information + sum of p (1 - p)
    shift       = discounted shift + sum of (accepted - p) / (precision + information)

over the tokens that were offered, with ``p`` what was expected of each. Where all ``p`` are equal
this is the Beta posterior ``(kappa p + accepted) / (kappa + offered)`` to first order. Two-sided
CUSUM sums of standardised surprises tell when the prompt has changed; the shift then starts anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policy_service.goodput.rates import Floats

TOKEN_INFORMATION = 0.2
"""What one token says about log odds, ``p (1 - p)`` at an ordinary ``p``."""
LEAST_KAPPA, LARGEST_KAPPA = 2.0, 20.0
_LARGEST_SHIFT = 6.0
_CUSUM_SLACK = 0.5


class Effects:
    """Shifts of some prompts and drafters: one array, so that they are read and written at once.

    Attributes:
        fields: Shift on the log odds; what has been learnt of it, without the prior; CUSUM of
            surprises upwards; CUSUM downwards, ``[4, ...]``.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: Floats) -> None:
        """Take the fields over."""
        self.fields = fields

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Effects:
        """Return those of prompts that are like their context."""
        return cls(np.zeros((4, *shape), np.float32))

    @property
    def shift(self) -> Floats:
        """Shift on the log odds."""
        shift: Floats = self.fields[0]
        return shift

    @property
    def information(self) -> Floats:
        """What has been learnt of the shift, without the prior."""
        information: Floats = self.fields[1]
        return information

    def at(self, *index: Any) -> Effects:
        """Return a copy of some of them."""
        return Effects(self.fields[(slice(None), *index)])

    def put(self, values: Effects, *index: Any) -> None:
        """Overwrite some of them."""
        self.fields[(slice(None), *index)] = values.fields


def fade(effects: Effects, discount: float, precision: float, *index: Any) -> None:
    """Let what was learnt of some effects count for less.

    Args:
        effects: Changed.
        discount: What evidence weighs afterwards.
        precision: Of the prior.
        index: Which of them.
    """
    shift, information = effects.fields[(slice(0, 2), *index)]
    faded = information * np.float32(discount)
    weight = np.float32(discount) * (information + precision) / (faded + precision)
    effects.fields[(slice(0, 2), *index)] = shift * weight, faded


def learnt(
    effects: Effects, surprise: Floats, spread: Floats, *, precision: float, threshold: float
) -> Effects:
    """Return the effects after a draft of each was verified.

    Args:
        effects: Of some prompts' drafters, ``[num]``.
        surprise: Accepted tokens less those expected of the ones offered, ``[num]``.
        spread: Sum of ``p (1 - p)`` of those offered; 0 where none was, ``[num]``.
        precision: Of the prior.
        threshold: CUSUM, in standard deviations, at which a prompt has changed.
    """
    shift, information, *cusums = effects.fields
    information = information + spread
    shift = np.clip(shift + surprise / (information + precision), -_LARGEST_SHIFT, _LARGEST_SHIFT)
    score = surprise / np.sqrt(spread + np.float32(0.05))
    slack = np.float32(_CUSUM_SLACK) * (spread > 0)
    cusums = np.maximum(0.0, np.stack(cusums) + np.stack((score, -score)) - slack)
    fields = np.stack((shift, information, *cusums))
    fields[:, cusums.max(axis=0) > threshold] = 0.0  # the prompt has changed: start anew
    return Effects(fields)


class Strength:
    """How alike prompts are: ``kappa``, by moments over prompts that have ended.

    For a prompt whose tokens surprised by ``r`` in all, with spread ``v``,
    ``E[r^2] = v + tau^2 v^2``, where ``tau^2`` is the variance of shifts. So
    ``tau^2 = sum(r^2 - v) / sum(v^2)``, which in terms
    of tokens is ``kappa = 1 / (tau^2 * TOKEN_INFORMATION)``, within [2, 20]. Older prompts fade.
    """

    def __init__(self, kappa: float) -> None:
        """Start from a guess that is worth some prompts."""
        self._square = 200.0
        self._excess = self._square / (kappa * TOKEN_INFORMATION)

    @property
    def kappa(self) -> float:
        """Tokens that the context's rates are worth to a prompt."""
        variance = max(self._excess / self._square, 1e-6)
        return min(LARGEST_KAPPA, max(LEAST_KAPPA, 1.0 / (variance * TOKEN_INFORMATION)))

    @property
    def precision(self) -> float:
        """The same as a precision of the shift."""
        return self.kappa * TOKEN_INFORMATION

    def add(self, surprise: float, spread: float) -> None:
        """Count a prompt and drafter."""
        if spread > 0.0:
            self._square = 0.99 * self._square + spread**2
            self._excess = 0.99 * self._excess + surprise**2 - spread
