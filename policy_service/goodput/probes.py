"""Probes: now and then one sequence of a step tries another arm than the one that looks best. Pure.

An arm that looks bad would never be tried again, however few rounds that rests on. A probe gives an
arm that was not chosen to a sequence where it loses least. Up to ``share`` of all rounds are
probes, at most one a step, and fewer where they would lose more than ``_MOST_LOST`` of the tokens.
Trim has probes of its own: one token more than pays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_service.goodput.ask import Offers, Plan

_MOST_LOST = 0.005
"""Share of tokens that probes may lose in the long run, by what is expected of their arms."""
_LOST_AT_FIRST = 0.03
_FEW_DRAFTS = 50.0
"""While so few drafts are known of a drafter, probes of it may lose ``_LOST_AT_FIRST`` more."""
_ALIKE = 0.02
"""Sequences whose losses differ by no more tokens are equally good to try an arm with."""


@dataclass(frozen=True, slots=True)
class Probes:
    """What may be probed in a step.

    Attributes:
        chances: With what probability each sequence tries each arm, ``[num_sequences, num_arms]``.
    """

    chances: NDArray[np.float64]

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:
        """Draw a sequence and the arm that it is to try, or mostly nothing."""
        sums = np.cumsum(self.chances)
        left = rng.random()
        if not len(sums) or left >= sums[-1]:
            return None
        place = int(np.searchsorted(sums, left, side="right"))
        return place // self.chances.shape[1], place % self.chances.shape[1]

    def chosen_anyway(self) -> NDArray[np.float64]:
        """Return with what probability each sequence is not given another arm."""
        kept: NDArray[np.float64] = 1.0 - self.chances.sum(axis=1)
        return kept


def possible_probes(
    plan: Plan, offers: Offers, share: float, drafts: NDArray[np.float64]
) -> Probes:
    """Return the probes of a step.

    Args:
        plan: What looks best.
        offers: What it was chosen from.
        share: Share of all rounds that may be probes.
        drafts: How many drafts of each drafter are known of, ``[num_drafters]``.
    """
    values = plan.values
    num_sequences, num_arms = values.shape
    num_caps = num_arms // max(1, len(offers.waits))
    drafting = np.flatnonzero(plan.arms >= 0)
    best = np.zeros(num_sequences, np.float32)
    best[drafting] = values[drafting, plan.arms[drafting]]
    losses = best[:, None] - values
    losses[drafting, plan.arms[drafting]] = np.inf
    least = losses.min(axis=0)
    later = np.repeat(np.maximum(offers.waits - plan.wait_ms, 0.0), num_caps) * offers.rate
    lost = (np.maximum(least, 0.0) + later) / plan.tokens
    most = np.repeat(_MOST_LOST + _LOST_AT_FIRST / (1 + drafts / _FEW_DRAFTS), num_caps)
    rarer = np.minimum(1.0, most / np.maximum(lost, 1e-9))
    chances = min(1.0, share * num_sequences) / max(1, num_arms) * rarer
    is_least = losses <= np.minimum(least + _ALIKE, np.finfo(np.float32).max)
    return Probes(is_least * (chances / np.maximum(1, is_least.sum(axis=0))))
