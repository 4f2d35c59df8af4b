"""Rounds as they are kept to be explained or to judge learners by: plain data. No I/O."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import lru_cache

from policy_service.api import Arm, Decision, Outcome, RequestFeatures, RewardKind


@dataclass(frozen=True, slots=True)
class LogHeader:
    """Whose rounds a file holds.

    Attributes:
        target_model: Name of the target model.
        replica: Name of the Verifier.
        incarnation: Drawn when its process started.
        learner: The configured learner; a request may have had another.
        reward: What learners were paid for.
        share: Share of requests that is logged.
        created_at: When the file was begun, in seconds since 1970.
    """

    target_model: str
    replica: str
    incarnation: str
    learner: str
    reward: RewardKind
    share: float
    created_at: float


@dataclass(slots=True)
class RoundRecord:
    """One round of one reply. Not frozen, only because the engine makes one for every round.

    Attributes:
        request_id: Of the HTTP request.
        sequence: Which of the requests with this id, a client's own choice, it was.
        choice: Which of the request's replies.
        index: Rounds of the reply before this one, on the same Verifier.
        position: Tokens of the reply before it.
        time: When it ended, in seconds since 1970.
        features: What was known of the request.
        allowed: The arms there were to choose from; a single one where there was no choice.
        decision: What was chosen and why.
        outcome: What it cost and earned.
        draft_score: The drafter's confidence in the draft, in its own unit.
        accepted_nodes: Positions in the draft of the accepted tokens, ascending. In a chain they
            are the first ones; in a tree they need not be.
    """

    request_id: str
    sequence: str
    choice: int
    index: int
    position: int
    time: float
    features: RequestFeatures
    allowed: tuple[Arm, ...]
    decision: Decision
    outcome: Outcome
    draft_score: float = 0.0
    accepted_nodes: tuple[int, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class LoggedReply:
    """The rounds of one reply on one Verifier.

    Attributes:
        header: Of the file that its first round is in.
        rounds: In order, without a gap between them.
        is_from_start: Whether the first of them was the reply's first there.
    """

    header: LogHeader
    rounds: tuple[RoundRecord, ...]
    is_from_start: bool = True


@lru_cache(maxsize=4096)
def is_sampled(request_id: str, share: float) -> bool:
    """Whether a request belongs to the share that is logged: all its rounds, or none.

    Decided by a hash of its id, so that all Verifiers agree.
    """
    digest = hashlib.sha256(request_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2.0**64


def finite_estimates(decision: Decision) -> dict[str, float]:
    """Return a decision's estimates that are numbers: JSON knows no others."""
    pairs = ((name, float(value)) for name, value in decision.estimates.items())
    return {name: value for name, value in pairs if math.isfinite(value)}
