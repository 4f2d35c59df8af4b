"""What a logged round says of an arm: what it would have cost and earned, and with what chance.

A round tells the outcome of its own arm and of those that its draft reveals
(``policy_service.full_information``). The chance that a round tells an arm's outcome is the sum of
the chances of the arms that would have told it, as far as the log knows them. No I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from policy_service.api import NONE, Arm, Outcome
from policy_service.decision_log.records import RoundRecord
from policy_service.full_information import reveals, shorter_alike_ms

_SAME = 1e-4
"""Within what chances count as the same: estimates are logged to six digits."""

Kept = Callable[[Arm, int, float], int]
"""Returns how many nodes of an arm's draft, given length and score, would have been verified."""


@dataclass(frozen=True, slots=True)
class Telling:
    """Whether a round tells an arm's outcome.

    Attributes:
        chance: With what chance the log's learner would have told it; 0 if it never would, and of
            no meaning where ``is_known`` is false.
        is_known: Whether the chance can be known without the round having told it.
        is_told: Whether this round did.
    """

    chance: float
    is_known: bool
    is_told: bool


def telling(record: RoundRecord, chances: Sequence[float] | None, arm: Arm) -> Telling:
    """Return whether a round tells an arm's outcome, and with what chance.

    Args:
        record: The round.
        chances: ``logged_chances`` of it.
        arm: One of the allowed arms.
    """
    if chances is not None:
        pairs = zip(record.allowed, chances, strict=True)
        chance = min(1.0, sum(chance for other, chance in pairs if reveals(other, arm)))
        return Telling(chance, True, reveals(record.decision.arm, arm))
    if arm == NONE:
        return Telling(1.0, True, True)
    # Whether it is told may depend on nothing but the arm played, whose chance alone is known.
    return Telling(record.decision.propensity, False, record.decision.arm == arm)


def logged_chances(record: RoundRecord) -> tuple[float, ...] | None:
    """Return the chance that each allowed arm had; None if only that of the arm chosen is known.

    They are known where the choice left nothing to chance, where it was as likely as any other, and
    where the estimates are the chances. The last is seen by their sum and by the propensity, so no
    learner has to be known here.
    """
    decision, allowed = record.decision, record.allowed
    if decision.propensity == 1.0:
        return tuple(float(arm == decision.arm) for arm in allowed)
    if math.isclose(decision.propensity * len(allowed), 1.0, rel_tol=_SAME):
        return (1 / len(allowed),) * len(allowed)
    names = [str(arm) for arm in allowed]
    if not all(name in decision.estimates for name in names):
        return None
    estimates = [decision.estimates[name] for name in names]
    chosen = estimates[allowed.index(decision.arm)]
    if _are_chances(estimates) and math.isclose(chosen, decision.propensity, rel_tol=_SAME):
        return tuple(estimates)
    return None


def _are_chances(values: Sequence[float]) -> bool:
    return min(values) >= 0 and math.isclose(sum(values), 1.0, rel_tol=_SAME)


def would_have_been(record: RoundRecord, arm: Arm, kept: Kept) -> Outcome | None:
    """Return the outcome of an arm that the round tells.

    A shorter draft is one's first tokens, and took as much of the step as they are of the whole
    draft, in between a plain step and that one; it was waited for as long.

    Args:
        record: The round.
        arm: Its own arm or one that it reveals.
        kept: How the arm's draft would have been trimmed.

    Returns:
        The outcome; None if more of the draft would have been verified than was.
    """
    outcome = record.outcome
    if arm == NONE:
        return _plain(outcome)
    drafted = min(outcome.num_drafted, arm.gamma)
    verified = kept(arm, drafted, record.draft_score)
    if verified > outcome.num_verified:
        return None
    if verified == outcome.num_verified:
        return replace(outcome, num_drafted=drafted)
    accepted = sum(node < verified for node in record.accepted_nodes)
    alike_ms = shorter_alike_ms(outcome, verified) if outcome.alike_ms > 0 else 0.0
    return replace(
        outcome,
        num_drafted=drafted,
        num_verified=verified,
        num_accepted=accepted,
        num_emitted=min(outcome.num_emitted, accepted + 1),
        step_ms=alike_ms or outcome.step_ms,
        alike_ms=alike_ms,
    )


def _plain(outcome: Outcome) -> Outcome:
    return replace(
        outcome,
        num_drafted=0,
        num_verified=0,
        num_accepted=0,
        num_emitted=min(outcome.num_emitted, 1),
        step_ms=outcome.plain_ms or outcome.step_ms,
        draft_wait_ms=0.0,
        draft_status="none",
        alike_ms=outcome.plain_ms,
    )
