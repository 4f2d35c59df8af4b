"""A Verifier's samples: what its meter counted and what its report says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from replicas.autoscaling import (
    BLOCKED_TOKENS,
    GOODPUT,
    PROMPT_RATE,
    QUEUED_TOKENS,
    REPLY_TOKENS,
)
from replicas.metrics.samples import Labels, Sample, by_label, read_histogram, read_report

FAILURE_REASONS = ("late", "failed", "malformed", "need_context", "away", "busy")

_REPORT = {
    "vllm:num_requests_running": "num_running",
    "vllm:kv_cache_usage_perc": "cache_usage",
    "vllm:num_preemptions_total": "num_preemptions",
    "vllm:admission_rejections_total": "loop.num_rejected",
    "specdec_policy_age_seconds": "policy.snapshot_age_s",
    "banditserve_steps_total": "steps",
    "banditserve_forward_seconds_total": "forward_s",
    "banditserve_draft_wait_seconds_total": "draft_wait_s",
    "banditserve_seconds_since_last_step": "loop.seconds_since_step",
    "banditserve_step_running_seconds": "loop.step_running_s",
    "banditserve_cache_tokens": "cache_tokens",
    "banditserve_open_draft_sessions": "open_draft_sessions",
    "banditserve_queued_tokens": f"work.{QUEUED_TOKENS}",
    "banditserve_blocked_tokens": f"work.{BLOCKED_TOKENS}",
    "banditserve_reply_tokens": f"work.{REPLY_TOKENS}",
    "banditserve_prompt_tokens_per_second": f"work.{PROMPT_RATE}",
    "banditserve_goodput_tokens_per_second": f"work.{GOODPUT}",
    "banditserve_policy_up": "policy.up",
    "banditserve_policy_sync_failures_total": "policy.missed",
    "banditserve_policy_unsent_cells": "policy.unsent_cells",
    "banditserve_policy_dropped_pulls_total": "policy.dropped_pulls",
    "banditserve_policy_lost_batches_total": "policy.lost_batches",
    "banditserve_policy_snapshot_version": "policy.snapshot_version",
}
_DRAFTER = {
    "banditserve_drafter_workers": "workers",
    "banditserve_drafter_usable": "up",
    "banditserve_drafter_ejections_total": "ejections",
    "specdec_empty_drafts_total": "cost.empty",
    "specdec_sent_tokens_total": "cost.sent_tokens",
    "specdec_contexts_sent_total": "cost.contexts",
}
_DEPTHS = {
    "specdec_proposed_tokens_per_pos_total": "drafted_by_depth",
    "specdec_verified_tokens_per_pos_total": "verified_by_depth",
}
_TIMES = {
    "specdec_draft_time_seconds": "draft_ms",
    "specdec_draft_queue_seconds": "queue_ms",
    "specdec_draft_transport_seconds": "transport_ms",
    "specdec_draft_round_trip_seconds": "round_trip_ms",
}


def verifier_samples(report: Mapping[str, Any], labels: Labels) -> Iterator[Sample]:
    """Yield what a Verifier's report says.

    Args:
        report: Of the Verifier.
        labels: The model's and the engine's name.
    """
    waiting = {"capacity": report["num_waiting"], "step": report["loop"]["num_arriving"]}
    yield Sample("vllm:num_requests_waiting", labels, float(sum(waiting.values())))
    yield from by_label("vllm:num_requests_waiting_by_reason", labels, "reason", waiting.items())
    yield Sample("banditserve_engine_healthy", labels, float(report["problem"] is None))
    yield from read_report(report, _REPORT, labels)
    for drafter in report["drafters"]:
        yield from _drafter_samples(drafter, {**labels, "drafter": drafter["name"]})


def _drafter_samples(drafter: Mapping[str, Any], labels: Labels) -> Iterator[Sample]:
    yield from read_report(drafter, _DRAFTER, labels)
    failures = {**dict.fromkeys(FAILURE_REASONS, 0), **drafter["by_reason"]}
    yield from by_label("specdec_draft_failures_total", labels, "reason", failures.items())
    for name, key in _DEPTHS.items():
        yield from by_label(name, labels, "position", enumerate(drafter["cost"][key]))
    for name, key in _TIMES.items():
        yield Sample(name, labels, read_histogram(drafter["cost"][key]))
