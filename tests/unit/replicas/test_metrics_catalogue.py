"""The catalogue keeps the rules that dashboards, load generators and Prometheus rely on."""

from __future__ import annotations

import re

import pytest

from drafters.histogram import BOUNDS_MS
from replicas.metrics.catalogue import CATALOGUE, sample_names
from replicas.metrics.series import DRAFT_SECONDS, Series
from replicas.metrics.vllm_series import VLLM_SERIES

VLLM_NAMES = (
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_waiting_by_reason",
    "kv_cache_usage_perc",
    "num_preemptions_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "admission_rejections_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_params_n",
    "request_params_max_tokens",
    "iteration_tokens_total",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
)
VLLM_LABELS = {
    "vllm:request_success_total": {"finished_reason"},
    "vllm:num_requests_waiting_by_reason": {"reason"},
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": {"position"},
}
LABELS = {
    *("model_name", "engine", "replica", "drafter", "gamma", "learner", "context", "position"),
    *("reason", "finished_reason", "route", "status", "outcome", "part"),
}
"""Every one is bounded, as the catalogue says."""

every_series = pytest.mark.parametrize("series", CATALOGUE.values(), ids=lambda one: one.name)


def test_all_of_vllms_names_are_there_and_no_others_begin_like_them() -> None:
    named = {series.name for series in VLLM_SERIES}
    assert named == {f"vllm:{name}" for name in VLLM_NAMES}
    assert named == {name for name in CATALOGUE if name.startswith("vllm:")}


@pytest.mark.parametrize("series", VLLM_SERIES, ids=lambda one: one.name)
def test_vllms_series_have_vllms_labels(series: Series) -> None:
    assert set(series.labels) == {
        *("model_name", "engine"),
        *VLLM_LABELS.get(series.name, set()),
    }


@every_series
def test_names_types_and_labels_are_what_prometheus_expects(series: Series) -> None:
    assert re.fullmatch(r"(vllm:|specdec_|banditserve_)[a-z0-9_]+", series.name)
    if series.kind != "histogram":
        assert series.name.endswith("_total") == (series.kind == "counter")
    assert (series.buckets != ()) == (series.kind == "histogram")
    assert list(series.buckets) == sorted(set(series.buckets))
    assert series.help.endswith(".")
    assert len(set(series.labels)) == len(series.labels)
    assert set(series.labels) <= LABELS
    assert "model_name" in series.labels


def test_no_line_could_belong_to_two_families() -> None:
    assert len(sample_names()) == sum(len(one.sample_names()) for one in CATALOGUE.values())


def test_drafters_report_their_times_in_the_buckets_of_the_catalogue() -> None:
    assert tuple(bound / 1e3 for bound in BOUNDS_MS) == pytest.approx(DRAFT_SECONDS)
