"""What a round says about arms that were not chosen.

A draft of ``g`` tokens is verified token by token, so what its first ``g' < g`` tokens would have
earned is known as well: the rewards of the same drafter's shorter arms, whose drafts are prefixes
of this one. This holds for chains from drafters that draft alike whatever length they are asked
for; of a tree, the shorter arms' rewards are upper bounds. What plain decoding would have earned,
one token, is always known.

Of longer arms nothing is said: theirs is known only where the draft was rejected, and to learn
from bad rounds alone would be biased.
"""

from __future__ import annotations

from collections.abc import Iterable

from policy_service.api import Arm, Outcome, RewardKind
from policy_service.reward import reward, reward_of


def reveals(chosen: Arm, other: Arm) -> bool:
    """Whether a round of ``chosen`` says what ``other`` would have earned.

    >>> reveals(Arm("suffix", 8), Arm("suffix", 4)), reveals(Arm("suffix", 4), Arm("suffix", 8))
    (True, False)
    """
    return other.gamma == 0 or (other.drafter == chosen.drafter and other.gamma <= chosen.gamma)


def known_rewards(
    chosen: Arm, outcome: Outcome, kind: RewardKind, arms: Iterable[Arm]
) -> dict[Arm, float]:
    """Return what ``chosen`` earned, and what those of ``arms`` that it reveals would have.

    A shorter draft is taken to wait for the drafter as long as this one, and to be verified in a
    time between that of a plain step and that of this draft, in proportion to its tokens.
    """
    rewards = {arm: _would_earn(arm, outcome, kind) for arm in arms if reveals(chosen, arm)}
    rewards[chosen] = reward(outcome, kind)
    return rewards


def _would_earn(arm: Arm, outcome: Outcome, kind: RewardKind) -> float:
    """Return the reward had at most ``arm.gamma`` of the draft's tokens been verified."""
    if arm.gamma == 0:
        return 1.0
    if arm.gamma >= outcome.num_verified:
        return reward(outcome, kind)
    tokens = 1 + min(arm.gamma, outcome.num_accepted)
    return reward_of(tokens, outcome.plain_ms, shorter_alike_ms(outcome, arm.gamma), kind)


def shorter_alike_ms(outcome: Outcome, num_verified: int) -> float:
    """Return ``alike_ms`` had fewer of the draft's tokens been verified, as ``known_rewards``."""
    shortest_ms = outcome.plain_ms + outcome.draft_wait_ms
    share = num_verified / outcome.num_verified
    return shortest_ms + share * (outcome.alike_ms - shortest_ms)
