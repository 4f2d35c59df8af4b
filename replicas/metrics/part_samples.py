"""The samples of the Policy and of drafters' hosts: their statuses, read as series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from replicas.metrics.samples import Sample, by_label, read_report

_POLICY = {
    "banditserve_redis_up": "store_up",
    "banditserve_redis_failures_total": "store_failures",
    "banditserve_redis_cells": "store_cells",
    "banditserve_redis_used_memory_bytes": "store_bytes",
    "banditserve_redis_max_memory_bytes": "store_max_bytes",
    "banditserve_redis_compactions_total": "epochs_compacted",
    "banditserve_redis_dropped_epochs_total": "epochs_dropped",
    "banditserve_policy_cells": "cells",
    "banditserve_policy_epochs": "epochs",
    "banditserve_policy_published_version": "snapshot_version",
    "banditserve_policy_published_timestamp_seconds": "snapshot_created_at",
    "banditserve_policy_publish_errors_total": "publish_errors",
}
_BATCHES = ("applied", "duplicate", "refused", "stale")
_HOST = {
    "banditserve_drafter_up": "up",
    "banditserve_drafter_restarts_total": "restarts",
    "banditserve_drafter_sessions": "worker.num_sessions",
    "banditserve_drafter_calls_total": "worker.num_calls",
    "banditserve_drafter_drafts_total": "worker.num_drafts",
    "banditserve_drafter_draft_tokens_total": "worker.num_draft_tokens",
    "banditserve_drafter_refused_calls_total": "worker.num_refused_calls",
    "banditserve_drafter_refused_sessions_total": "worker.num_busy",
    "banditserve_drafter_closing_sessions": "worker.num_closing",
    "banditserve_drafter_followed_sequences": "worker.num_followed",
}


def policy_samples(status: Mapping[str, Any], model_name: str) -> Iterator[Sample]:
    """Yield what the Policy's status says."""
    labels = {"model_name": model_name}
    yield from read_report(status, _POLICY, labels)
    batches = ((one, status.get(f"batches_{one}", 0)) for one in _BATCHES)
    yield from by_label("banditserve_policy_batches_total", labels, "status", batches)


def host_samples(status: Mapping[str, Any], model_name: str) -> Iterator[Sample]:
    """Yield what the status of a drafter's host says; of its worker only while that answers."""
    labels = {
        "model_name": model_name,
        "drafter": str(status["name"]),
        "replica": str(status["replica_id"]),
    }
    yield from read_report(status, _HOST, labels)
    busy_ms = status["worker"].get("busy_ms")
    if busy_ms is not None:
        yield Sample("banditserve_drafter_busy_seconds_total", labels, busy_ms / 1e3)
