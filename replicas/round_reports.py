"""Rounds, explained: the same whether they come with a reply, from memory or from a log. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from policy_service.api import Decision, Outcome
from policy_service.decision_log.records import RoundRecord, finite_estimates
from replicas.api import RoundReport


def report_of(decision: Decision, outcome: Outcome, position: int) -> RoundReport:
    """Return a round, explained.

    Args:
        decision: What was chosen.
        outcome: What came of it.
        position: Tokens of the reply before it.
    """
    return RoundReport(
        arm=str(decision.arm),
        learner=decision.learner,
        reason=decision.reason,
        propensity=float(decision.propensity),
        snapshot_version=decision.snapshot_version,
        estimates=finite_estimates(decision),
        draft_status=outcome.draft_status,
        num_drafted=outcome.num_drafted,
        num_verified=outcome.num_verified,
        num_accepted=outcome.num_accepted,
        num_emitted=outcome.num_emitted,
        step_ms=outcome.step_ms,
        draft_wait_ms=outcome.draft_wait_ms,
        batch_size=outcome.batch_size,
        position=position,
    )


def explained_replies(records: Iterable[RoundRecord], replica: str) -> list[dict[str, Any]]:
    """Return the rounds of a request as JSON values, one entry for each of its replies.

    Args:
        records: Rounds of one request on one Verifier, those of a reply in order.
        replica: Name of the Verifier.
    """
    replies: dict[tuple[int, str], dict[str, Any]] = {}
    for record in records:
        key = record.choice, record.sequence
        reply = replies.setdefault(
            key,
            {
                "index": record.choice,
                "sequence": record.sequence,
                "verifier": replica,
                "first_round": record.index,
                "rounds": [],
            },
        )
        report = report_of(record.decision, record.outcome, record.position)
        reply["rounds"].append(asdict(report))
    return [replies[key] for key in sorted(replies)]
