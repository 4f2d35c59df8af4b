"""What a response tells of how it came about: times, speculation, and every round on request.

``metrics`` has vLLM's names and formulas, so that tools that read vLLM's responses read these. What
is ours stands beside it, under ``banditserve``. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from replicas.api import GenerationResult, GenerationStats
from replicas.ingress.choices import Done
from replicas.ingress.errors import ApiError, shorten, unavailable


def metrics(result: GenerationResult, max_gamma: int) -> dict[str, Any]:
    """Return the times and the speculation of a reply.

    Args:
        result: The reply.
        max_gamma: Largest configured speculation length.
    """
    stats = result.stats
    num_tokens = len(result.token_ids)
    generation_ms = max(0.0, stats.total_ms - stats.first_token_ms)
    return {
        "time_to_first_token_ms": round(stats.first_token_ms, 3),
        "generation_time_ms": round(generation_ms, 3),
        "queue_time_ms": round(stats.queue_ms, 3),
        "mean_itl_ms": round(generation_ms / max(1, num_tokens - 1), 3),
        "tokens_per_second": round(1000 * num_tokens / max(stats.total_ms, 1e-3), 3),
        "speculative_decoding": speculation(stats, max_gamma),
    }


def speculation(stats: GenerationStats, max_gamma: int) -> dict[str, Any]:
    """Return vLLM's summary of speculation.

    mean acceptance length = 1 + accepted / verify steps (the bonus token counts; 1.0 without
    steps); draft acceptance rate = accepted / proposed (0.0 with nothing proposed).
    """
    histogram = list(stats.acceptance_histogram)
    histogram += [0] * (max_gamma + 1 - len(histogram))
    num_steps = sum(histogram)
    accepted, drafted = stats.num_accepted_tokens, stats.num_draft_tokens
    return {
        "mean_acceptance_length": 1.0 + (accepted / num_steps if num_steps else 0.0),
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": histogram,
        "num_spec_steps": num_steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": len(histogram) - 1,
    }


def provenance(seed: int, done: Mapping[int, Done], explain: bool) -> dict[str, Any]:
    """Return who made the choices, from which seed, and on request every round.

    A single choice's facts stand beside the seed, those of several in a list.
    """
    facts = [{"index": index, **_facts(done[index], explain)} for index in sorted(done)]
    if len(facts) == 1:
        facts[0].pop("index")
        return {"seed": seed, **facts[0]}
    return {"seed": seed, "choices": facts}


def _facts(done: Done, explain: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"verifier": done.result.replica, "attempts": done.num_attempts}
    if explain:
        facts["rounds"] = [asdict(report) for report in done.result.rounds]
    return facts


def explanation(request_id: str, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rounds of a recent request, from what the Verifiers hold of it.

    A reply that went on at another Verifier has an entry for each.

    Raises:
        ApiError: If no Verifier answers, or none holds anything of it.
    """
    if not answers:
        raise unavailable("no Verifier answers just now")
    replies = [reply for answer in answers for reply in answer["replies"]]
    if not replies:
        num_rounds = max(answer["recent_rounds"] for answer in answers)
        raise ApiError(404, "request_not_found", _not_held(request_id, num_rounds), "request_id")
    replies.sort(key=lambda reply: (reply["index"], reply["sequence"]))
    return {"id": request_id, "object": "request.explanation", "choices": replies}


def _not_held(request_id: str, num_rounds: int) -> str:
    return (
        f"nothing is held of request {shorten(request_id)!r}: its X-Request-Id is another one, it "
        f"was sent with another key, or it is older than a Verifier's last {num_rounds} rounds "
        "(policy.decision_log.recent_rounds). For rounds in the response itself send "
        '"speculation": {"explain": true}'
    )
