"""The series under vLLM's names, with its labels and its definitions."""

from __future__ import annotations

from replicas.metrics.series import (
    CHOICES,
    ENGINE,
    SECONDS,
    STEP_SECONDS,
    STEP_TOKENS,
    TOKENS,
    Series,
    counter,
    gauge,
    histogram,
)

PREFIX = "vllm:"

_REQUESTS = (
    gauge("vllm:num_requests_running", "Requests under way."),
    gauge("vllm:num_requests_waiting", "Requests that wait for their first step."),
    gauge(
        "vllm:num_requests_waiting_by_reason",
        "Requests that wait: capacity, for room in batch and cache; step, for the step to end.",
        (*ENGINE, "reason"),
    ),
    gauge("vllm:kv_cache_usage_perc", "Share of the cache's pages in use, 0 to 1."),
    counter("vllm:num_preemptions", "Sequences that had to give their pages up."),
    counter("vllm:prompt_tokens", "Prompt tokens of choices whose prefill is complete."),
    counter("vllm:generation_tokens", "Tokens emitted."),
    counter(
        "vllm:request_success",
        "Choices that ended: stop, length, abort (cancelled), error (the engine stopped).",
        (*ENGINE, "finished_reason"),
    ),
    counter("vllm:admission_rejections", "Requests refused because too many wait."),
    counter("vllm:prefix_cache_queries", "Tokens looked up in the prefix cache."),
    counter("vllm:prefix_cache_hits", "Tokens found in the prefix cache."),
)

_DISTRIBUTIONS = (
    histogram(
        "vllm:time_to_first_token_seconds",
        "From a request's arrival at the Ingress to its first token.",
        SECONDS,
    ),
    histogram(
        "vllm:inter_token_latency_seconds",
        "Between two steps that gave a request tokens, however many each gave.",
        STEP_SECONDS,
    ),
    histogram(
        "vllm:request_time_per_output_token_seconds",
        "A request's time from first to last token, over its tokens after the first.",
        STEP_SECONDS,
    ),
    histogram(
        "vllm:e2e_request_latency_seconds",
        "From a request's arrival at the Ingress to its last token.",
        SECONDS,
    ),
    histogram(
        "vllm:request_queue_time_seconds",
        "From a request's arrival at the Verifier to its first step.",
        SECONDS,
    ),
    histogram(
        "vllm:request_inference_time_seconds",
        "From a request's first step to its last token.",
        SECONDS,
    ),
    histogram(
        "vllm:request_prefill_time_seconds",
        "From a request's first step to its first token.",
        SECONDS,
    ),
    histogram(
        "vllm:request_decode_time_seconds",
        "From a request's first token to its last.",
        SECONDS,
    ),
    histogram("vllm:request_prompt_tokens", "Prompt tokens of a choice.", TOKENS),
    histogram("vllm:request_generation_tokens", "Tokens of a reply.", TOKENS),
    histogram("vllm:request_params_max_tokens", "Longest reply allowed.", TOKENS),
    histogram(
        "vllm:iteration_tokens_total", "Tokens of a step: prefilled and emitted.", STEP_TOKENS
    ),
    Series(
        "vllm:request_params_n",
        "histogram",
        "Choices asked for by a request; engine is the Ingress that took it.",
        part="ingress",
        buckets=CHOICES,
    ),
)

_SPECULATION = (
    counter("vllm:spec_decode_num_drafts", "Drafts verified."),
    counter("vllm:spec_decode_num_draft_tokens", "Draft tokens verified."),
    counter("vllm:spec_decode_num_accepted_tokens", "Draft tokens accepted."),
    counter(
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens accepted, by position in the draft, the first one 0.",
        (*ENGINE, "position"),
        after="an accepted draft token",
    ),
)

VLLM_SERIES: tuple[Series, ...] = (*_REQUESTS, *_DISTRIBUTIONS, *_SPECULATION)
"""All of them."""
