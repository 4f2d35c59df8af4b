"""What is doubtful about an off-policy evaluation, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from policy_service.decision_log.records import LoggedReply
from policy_service.off_policy.evaluation import Support

FEW_ROUNDS = 200
"""Fewer effective rounds say little."""
FEW_REQUESTS = 30
"""Fewer effective requests make the interval too narrow."""

_NOTABLE_SHARE = 0.01
_SURPRISING = 5.0


def usable(replies: Sequence[LoggedReply]) -> tuple[list[LoggedReply], list[str]]:
    """Return the replies that a learner can be judged by, and in words what was left out."""
    whole = [reply for reply in replies if reply.is_from_start]
    chosen = [reply for reply in whole if any(len(one.allowed) > 1 for one in reply.rounds)]
    notes = []
    if len(whole) < len(replies):
        notes.append(f"{len(replies) - len(whole)} replies without their first rounds left out")
    if len(chosen) < len(whole):
        notes.append(f"{len(whole) - len(chosen)} replies that had no choice left out")
    return chosen, notes


def doubts(support: Support, log_learners: Sequence[str]) -> list[str]:
    """Return what should keep one from believing the estimates, the gravest first.

    Args:
        support: What the estimates rest on.
        log_learners: The learners that made the log's choices.
    """
    names = ", ".join(sorted(set(log_learners))) or "unknown"
    found = [*_wrong_chances(support), *_no_support(support, names)]
    if support.effective_rounds < FEW_ROUNDS or support.effective_requests < FEW_REQUESTS:
        found.append(
            f"too little to go by: worth {support.effective_rounds:.0f} rounds of "
            f"{support.effective_requests:.0f} requests; expected at least {FEW_ROUNDS} of "
            f"{FEW_REQUESTS}. The intervals are too narrow"
        )
    if support.cut_share > _NOTABLE_SHARE:
        found.append(
            f"{support.cut_share:.0%} of the rounds would have told the choice, had their drafts "
            "not been cut after drafting; estimates lean towards drafts that are not cut"
        )
    if support.own_rounds < support.logged_rounds / 2:
        found.append(
            f"the learner had {support.own_rounds:.1f} rounds of a reply to learn from, where the "
            f"log has {support.logged_rounds:.1f}: the figures are those of its first rounds"
        )
    return found


def _wrong_chances(support: Support) -> list[str]:
    if abs(support.surprise) <= _SURPRISING:
        return []
    return [
        "the log's propensities do not agree with its choices: the weights are "
        f"{abs(support.surprise):.0f} standard deviations too "
        f"{'large' if support.surprise > 0 else 'small'}. Nothing here can be relied on"
    ]


def _no_support(support: Support, names: str) -> list[str]:
    found = []
    if support.untold_share > _NOTABLE_SHARE:
        found.append(
            f"{support.untold_share:.0%} of the learner's choices could never have been seen, for "
            f"the log's learner ({names}) did not make them; all but doubly_robust leave them out, "
            "and that has only its model for them"
        )
    if support.drawn_share == 0:
        found.append(
            f"the log's learner ({names}) left nothing to chance, so that its choices depend on "
            "what it had seen; a log of uniform, exp3spec or thompson says more"
        )
    return found
