"""Samples become text that Prometheus' own parser reads back as what they were."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from replicas.metrics.catalogue import CATALOGUE, sample_names
from replicas.metrics.exposition import render
from replicas.metrics.samples import Distribution, Sample

ENGINE = {"model_name": "m", "engine": "v1"}


def scraped(
    samples: Sequence[Sample], vllm_names: bool = True
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(render(samples, vllm_names).decode())
        for one in family.samples
    }


def one_of_each() -> list[Sample]:
    samples = []
    for name, series in CATALOGUE.items():
        labels = dict.fromkeys(series.labels, "x")
        if series.kind == "histogram":
            distribution = Distribution.empty(series.buckets)
            distribution.add(series.buckets[0])
            samples.append(Sample(name, labels, distribution))
        else:
            samples.append(Sample(name, labels, 2.0))
    return samples


def test_every_series_is_read_back() -> None:
    assert {name for name, _ in scraped(one_of_each())} == sample_names()


def test_a_family_is_described_once_whoever_its_samples_are_from() -> None:
    engines = [{**ENGINE, "engine": engine} for engine in ("a", "b", "c")]
    samples = [Sample("vllm:prompt_tokens_total", engine, 1.0) for engine in engines]
    lines = render(samples).decode().splitlines()
    described = Counter(line.split()[2] for line in lines if line.startswith("#"))
    assert described == {"vllm:prompt_tokens_total": 2}  # HELP and TYPE
    assert len(lines) == 2 + 3


def test_of_two_samples_with_the_same_labels_the_first_counts() -> None:
    samples = [Sample("vllm:prompt_tokens_total", ENGINE, value) for value in (1.0, 2.0)]
    assert list(scraped(samples).values()) == [1.0]


def test_samples_that_the_catalogue_does_not_have_are_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    samples = [
        Sample("vllm:prompt_tokens_total", ENGINE, 1.0),
        Sample("vllm:prompt_tokens_total", {**ENGINE, "tenant": "acme"}, 1.0),
        Sample("banditserve_of_tomorrow", ENGINE, 1.0),
    ]
    with caplog.at_level(logging.ERROR):
        assert len(scraped(samples)) == 1
    assert "banditserve_of_tomorrow" in caplog.text


def test_vllms_names_can_be_switched_off() -> None:
    found = {name for name, _ in scraped(one_of_each(), vllm_names=False)}
    assert not [name for name in found if name.startswith("vllm:")]
    assert "specdec_rounds_total" in found


@given(st.lists(st.floats(min_value=0, max_value=1e4)))
def test_a_histogram_counts_every_value_in_all_buckets_that_hold_it(values: list[float]) -> None:
    series = CATALOGUE["vllm:time_to_first_token_seconds"]
    distribution = Distribution.empty(series.buckets)
    for value in values:
        distribution.add(value)
    found = scraped([Sample(series.name, ENGINE, distribution)])
    for (name, labels), value in found.items():
        if name.endswith("_bucket"):
            bound = float(dict(labels)["le"])
            assert value == sum(one <= bound for one in values)
        elif name.endswith("_count"):
            assert value == len(values)
        elif name.endswith("_sum"):
            assert value == pytest.approx(sum(values))
