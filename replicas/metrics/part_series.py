"""The series that say how the parts are: Verifiers, Ingresses, the Policy, drafters' workers."""

from __future__ import annotations

from replicas.metrics.series import (
    HOST,
    INGRESS,
    POLICY,
    STEP_SECONDS,
    STEP_TOKENS,
    Kind,
    Series,
    counter,
    gauge,
    histogram,
)

_VERIFIER = (
    counter("banditserve_steps", "Steps of the engine."),
    histogram("banditserve_step_seconds", "Time of a step.", STEP_SECONDS),
    histogram("banditserve_step_sequences", "Sequences that decoded in a step.", STEP_TOKENS),
    counter("banditserve_forward_seconds", "Seconds in the target's forward."),
    counter("banditserve_draft_wait_seconds", "Seconds that steps waited for drafters."),
    gauge("banditserve_seconds_since_last_step", "Since a step ended; grows while idle."),
    gauge("banditserve_step_running_seconds", "Age of the present step; 0 while idle."),
    gauge("banditserve_engine_healthy", "1 while the engine can go on, else 0."),
    gauge("banditserve_cache_tokens", "Tokens that the cache has room for."),
    gauge("banditserve_open_draft_sessions", "Sequences that some drafter has a session of."),
    gauge("banditserve_queued_tokens", "Prompt tokens to compute before all here have a token."),
    gauge("banditserve_blocked_tokens", "Reply tokens to emit before there is room for all."),
    gauge("banditserve_reply_tokens", "Reply tokens that the requests here still need."),
    gauge("banditserve_prompt_tokens_per_second", "Pace of prefill lately, while there is any."),
    gauge("banditserve_goodput_tokens_per_second", "Pace of replies lately, while there is work."),
    gauge("banditserve_policy_up", "1 while the Policy answers a Verifier, else 0."),
    counter("banditserve_policy_sync_failures", "Exchanges with the Policy that failed."),
    gauge("banditserve_policy_unsent_cells", "Counters that wait to be sent to the Policy."),
    counter("banditserve_policy_dropped_pulls", "Pulls dropped because too much waited."),
    counter("banditserve_policy_lost_batches", "Batches that the store lost for good."),
    gauge("banditserve_policy_snapshot_version", "Version of the counts in use; 0: none."),
)


def _ingress(kind: Kind, name: str, meaning: str, *labels: str, after: str = "") -> Series:
    return Series(name, kind, meaning, (*INGRESS, *labels), "ingress", after=after)


_INGRESS = (
    _ingress(
        "counter",
        "banditserve_http_requests_total",
        "HTTP requests answered, by route and status; 499: the client went away.",
        "route",
        "status",
        after="an HTTP request",
    ),
    _ingress(
        "gauge",
        "banditserve_http_requests_in_progress",
        "HTTP requests under way, streams included.",
    ),
    _ingress(
        "counter",
        "banditserve_choices_total",
        "Choices, by what became of them: started, finished, failed.",
        "outcome",
    ),
    _ingress(
        "counter",
        "banditserve_resubmissions_total",
        "Choices that went on at another Verifier or tried again, after one was lost or full.",
    ),
    _ingress(
        "gauge",
        "banditserve_parts_up",
        "Parts that answered the last time that this Ingress gathered all series.",
        "part",
        after="a scrape of /metrics",
    ),
    _ingress(
        "counter",
        "banditserve_scrape_misses_total",
        "Parts that did not answer when this Ingress gathered all series.",
        "part",
        after="a scrape of /metrics",
    ),
)


def _policy(kind: Kind, name: str, meaning: str, *labels: str) -> Series:
    return Series(name, kind, meaning, (*POLICY, *labels), "policy")


_POLICY = (
    _policy("gauge", "banditserve_redis_up", "1 while the Policy reaches Redis, else 0."),
    _policy("counter", "banditserve_redis_failures_total", "Commands that Redis did not answer."),
    _policy("gauge", "banditserve_redis_cells", "Counters kept in Redis."),
    _policy(
        "gauge",
        "banditserve_redis_used_memory_bytes",
        "Memory that the counters take in Redis, as measured every few seconds.",
    ),
    _policy(
        "gauge",
        "banditserve_redis_max_memory_bytes",
        "Memory that they may take (policy.max_store_bytes); beyond it old counts are widened.",
    ),
    _policy(
        "counter",
        "banditserve_redis_compactions_total",
        "Times that old counts were added to wider contexts for lack of room.",
    ),
    _policy(
        "counter",
        "banditserve_redis_dropped_epochs_total",
        "Epochs of counts given up for lack of room.",
    ),
    _policy(
        "counter",
        "banditserve_policy_batches_total",
        "Batches of counts from Verifiers: applied, duplicate, refused (sent again), stale (of "
        "counts that were reset or are too old).",
        "status",
    ),
    _policy("gauge", "banditserve_policy_cells", "Counters in the published snapshot."),
    _policy("gauge", "banditserve_policy_epochs", "Epochs of counts that have not expired."),
    _policy("gauge", "banditserve_policy_published_version", "Version of the snapshot; 0: none."),
    _policy(
        "gauge",
        "banditserve_policy_published_timestamp_seconds",
        "When the snapshot was made, in seconds since 1970; only changed counts make a new one.",
    ),
    _policy("counter", "banditserve_policy_publish_errors_total", "Snapshots that failed."),
)


def _host(kind: Kind, name: str, meaning: str) -> Series:
    return Series(f"banditserve_drafter_{name}", kind, meaning, HOST, "drafter")


_DRAFTERS = (
    _host("gauge", "up", "1 while a host's worker is up, else 0."),
    _host("counter", "restarts_total", "How often a host started its worker anew."),
    _host("gauge", "sessions", "Sessions open at a worker."),
    _host("counter", "calls_total", "Calls that a worker answered; starts anew with the worker."),
    _host("counter", "drafts_total", "Drafts that a worker made, empty ones left out."),
    _host("counter", "draft_tokens_total", "Tokens of the drafts that a worker made."),
    _host("counter", "busy_seconds_total", "Seconds that a worker spent in calls."),
    _host("counter", "refused_calls_total", "Calls refused because too many waited."),
    _host("counter", "refused_sessions_total", "Sequences refused for lack of room."),
    _host("gauge", "closing_sessions", "Ended sessions that a worker has still to close."),
    _host("gauge", "followed_sequences", "Sequences that a worker follows for shadow scores."),
)

PART_SERIES: tuple[Series, ...] = (*_VERIFIER, *_INGRESS, *_POLICY, *_DRAFTERS)
"""All of them."""
