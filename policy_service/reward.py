"""The reward of a round, the only place where it is defined, and what a round adds to the counts.

Source: BanditSpec (arXiv 2505.15141), section 3: ``Y`` is the number of tokens a round yields, the
accepted ones and the one that the target adds, so it lies in ``[1, L + 1]``.

The time reward is ``Y * T(plain) / T(alike)``: the step's time had all its sequences decoded
plainly, over its time had all verified as much as this one. It is what the arm would be worth if
everybody played it. The measured time of a mixed step would not do: all its sequences share it, so
each would be paid for drafting long while the others pay.
"""

from __future__ import annotations

from policy_service.api import ArmCounts, Outcome, RewardKind

FAULTS = frozenset({"late", "failed", "malformed", "away"})
"""Draft statuses after which the drafter had better be left alone for a while."""

_NOT_A_PULL = FAULTS | {"need_context", "busy"}


def is_pull(outcome: Outcome) -> bool:
    """Whether the round says something about its arm.

    A drafter that found nothing (``empty``) has played and earned 1. One that did not answer in
    time, or not usably, has not played: counting that as a reward of 1 would make learners believe
    for days that the arm is bad, when a worker was only being restarted.
    """
    return outcome.draft_status not in _NOT_A_PULL


def reward_tokens(outcome: Outcome) -> int:
    """Return the reward: accepted tokens and one more, also where a stop cut the round short."""
    return outcome.num_accepted + 1


def reward(outcome: Outcome, kind: RewardKind) -> float:
    """Return the reward of a kind, in ``[0, L + 1]``."""
    return reward_of(reward_tokens(outcome), outcome.plain_ms, outcome.alike_ms, kind)


def reward_of(tokens: int, plain_ms: float, alike_ms: float, kind: RewardKind) -> float:
    """Return the reward of a kind for so many tokens in such times.

    Where the engine does not know its step times yet, the time reward is that in tokens.
    """
    if kind == "tokens" or plain_ms <= 0 or alike_ms <= 0:
        return float(tokens)
    return tokens * min(1.0, plain_ms / alike_ms)


def add_round(sums: list[int], outcome: Outcome) -> None:
    """Add one round to its arm's counters, which stand in the order of ``ArmCounts``.

    In place, because every sequence of every step is counted.
    """
    if outcome.draft_status in _NOT_A_PULL:
        sums[6] += 1
        return
    accepted, plain_ms, alike_ms = outcome.num_accepted, outcome.plain_ms, outcome.alike_ms
    sums[0] += 1
    sums[1] += accepted + 1
    sums[2] += outcome.num_drafted
    sums[3] += outcome.num_verified
    sums[4] += accepted
    sums[5] += round(outcome.step_ms * 1000) if outcome.step_ms > 0 else 0
    sums[7] += round(reward_of(accepted + 1, plain_ms, alike_ms, "time") * 1e6)


def round_counts(outcome: Outcome) -> ArmCounts:
    """Return what one round adds to its arm's counters."""
    sums = [0] * 8
    add_round(sums, outcome)
    return ArmCounts(*sums)
