"""Drafts as long as the match they come from: the rule of SuffixDecoding and Arctic Inference.

SuffixDecoding (arXiv 2411.04975) drafts at most ``factor * match length + offset`` tokens, and
Arctic Inference takes that draft if its score is at least ``min_score``, else a draft model's.
Here a step asks one drafter a sequence, and how good its draft is shows when it is there. So the
longest arm of ``drafter`` is asked, and its draft cut afterwards: to ``factor * score + offset``
tokens, and to none below ``min_score``. With a ``fallback``, that drafter is asked, and its draft
kept whole, in the round after one in which the first one's draft earned no more than a plain round.

Nothing else is learnt: this is a rule to beat, not a learner. It needs a drafter whose score is the
length of a match or the number of tokens it expects to be accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from policy_service.api import NONE, Arm, ArmPrior, Choice
from policy_service.statistics import check_drafter, check_number

_LEAST = -1e-9


@dataclass(frozen=True, slots=True)
class MatchLengthState:
    """What the last round was like.

    Attributes:
        missed: The first drafter's draft earned no more than plain decoding.
    """

    missed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"missed": self.missed}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gave."""
        return cls(values["missed"])


@dataclass(frozen=True, slots=True)
class MatchLength:
    """The rule.

    Attributes:
        factor: Tokens to verify for each unit of the draft's score.
        offset: Tokens to verify besides.
        min_score: A draft with a lower score is not verified.
        drafter: The drafter to ask; by default the first one allowed.
        fallback: The drafter to ask after a miss; by default none.
    """

    factor: float = 1.0
    offset: float = 0.0
    min_score: float = 0.0
    drafter: str | None = None
    fallback: str | None = None

    name: ClassVar[str] = "match_length"

    def __post_init__(self) -> None:
        check_number(self.name, "factor", self.factor, above=0, at_most=1000)
        check_number(self.name, "offset", self.offset, above=-1000, at_most=1000)
        check_number(self.name, "min_score", self.min_score, above=_LEAST, at_most=1e6)
        check_drafter(self.name, "drafter", self.drafter)
        check_drafter(self.name, "fallback", self.fallback)

    def initial_state(
        self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]
    ) -> MatchLengthState:
        """Return the state of a prompt that has missed nothing."""
        return MatchLengthState()

    def select(
        self, state: MatchLengthState, allowed: Sequence[Arm], rng: np.random.Generator
    ) -> Choice:
        """Choose the longest arm of the drafter whose turn it is."""
        first = self.drafter or next((arm.drafter for arm in allowed if arm != NONE), "")
        if state.missed and self.fallback is not None:
            turns = [(self.fallback, "after a miss"), (first, "match length")]
        else:
            turns = [(first, "match length")]
        for drafter, reason in turns:
            arms = [arm for arm in allowed if arm.drafter == drafter]
            if arms:
                return max(arms, key=lambda arm: arm.gamma), reason, 1.0, {}
        return min(allowed, key=lambda arm: arm.gamma), "no such drafter", 1.0, {}

    def trim(self, arm: Arm, draft_length: int, draft_score: float) -> int:
        """Return how many tokens of a draft its score is good for."""
        if arm.drafter == self.fallback:
            return draft_length
        if draft_score < self.min_score:
            return 0
        return max(0, min(draft_length, int(self.factor * draft_score + self.offset)))

    def update(self, state: MatchLengthState, arm: Arm, reward: float) -> MatchLengthState:
        """Return whether the round was a miss of the first drafter."""
        return MatchLengthState(arm != NONE and arm.drafter != self.fallback and reward <= 1)


LEARNER = MatchLength
