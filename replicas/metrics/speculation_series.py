"""The series that say what speculation does, by arm and by drafter."""

from __future__ import annotations

from replicas.metrics.series import (
    ARM,
    DRAFT_SECONDS,
    DRAFTER,
    ENGINE,
    Series,
    counter,
    gauge,
    histogram,
)

A_ROUND = "a decoded token"
A_DRAFT = "a draft"

_ARMS = (
    counter(
        "specdec_rounds",
        "Rounds decoded, by the arm chosen; plain decoding is drafter none, gamma 0.",
        ARM,
        A_ROUND,
    ),
    counter("specdec_emitted_tokens", "Tokens that rounds emitted, by arm.", ARM, A_ROUND),
    counter("specdec_drafts", "Drafts verified, by arm.", ARM, A_ROUND),
    counter("specdec_draft_tokens", "Draft tokens verified, by arm.", ARM, A_ROUND),
    counter("specdec_accepted_tokens", "Draft tokens accepted, by arm.", ARM, A_ROUND),
    counter(
        "specdec_accepted_tokens_per_pos",
        "Draft tokens accepted, by position in the draft, the first one 0.",
        (*DRAFTER, "gamma", "position"),
        "an accepted draft token",
    ),
    counter(
        "specdec_fallbacks",
        "Rounds that wanted a draft and were decoded plainly, by why: the failures of "
        "specdec_draft_failures, empty, trimmed, absent (no usable drafter).",
        (*ENGINE, "reason"),
    ),
    gauge(
        "specdec_policy_age_seconds",
        "Age of the pooled counts that new requests start from.",
        after="the first snapshot",
    ),
)

_COSTS = (
    histogram(
        "specdec_draft_wait_seconds",
        "How long a step waited for a drafter.",
        DRAFT_SECONDS,
        DRAFTER,
    ),
    histogram(
        "specdec_draft_time_seconds",
        "Time a drafter spent on a call, without queue.",
        DRAFT_SECONDS,
        DRAFTER,
    ),
    histogram(
        "specdec_draft_queue_seconds",
        "How long a call waited for others at the drafter.",
        DRAFT_SECONDS,
        DRAFTER,
    ),
    histogram(
        "specdec_draft_transport_seconds",
        "The rest of a call's round trip.",
        DRAFT_SECONDS,
        DRAFTER,
    ),
    histogram(
        "specdec_draft_round_trip_seconds",
        "From sending a call to its answer.",
        DRAFT_SECONDS,
        DRAFTER,
    ),
    counter(
        "specdec_proposed_tokens_per_pos",
        "Draft tokens that drafters proposed, by depth in the draft, the first one 0.",
        (*DRAFTER, "position"),
        A_DRAFT,
    ),
    counter(
        "specdec_verified_tokens_per_pos",
        "Draft tokens verified, by depth in the draft, the first one 0.",
        (*DRAFTER, "position"),
        A_DRAFT,
    ),
    counter(
        "specdec_draft_failures",
        "Drafts wanted and not had: late, failed, malformed, need_context, away, busy.",
        (*DRAFTER, "reason"),
    ),
    counter("specdec_empty_drafts", "Drafts for which the drafter found nothing.", DRAFTER),
    counter("specdec_sent_tokens", "Tokens sent to a drafter.", DRAFTER),
    counter("specdec_contexts_sent", "Whole contexts sent to a drafter.", DRAFTER),
    gauge(
        "banditserve_drafter_workers",
        "Workers of a drafter that a Verifier knows, ejected ones included.",
        DRAFTER,
    ),
    gauge(
        "banditserve_drafter_usable",
        "1 while a Verifier has a worker of the drafter that it may call, else 0.",
        DRAFTER,
    ),
    counter(
        "banditserve_drafter_ejections",
        "How often a worker that failed was left alone for a while.",
        DRAFTER,
    ),
)

SPECULATION_SERIES: tuple[Series, ...] = (*_ARMS, *_COSTS)
"""All of them."""
