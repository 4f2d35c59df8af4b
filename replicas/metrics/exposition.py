"""Samples as the text that Prometheus reads. The one file that makes it.

Always in Prometheus' own text format: in OpenMetrics' prometheus_client (0.26) writes ``vllm_`` for
``vllm:``, unless the client asks for names in UTF-8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from replicas.metrics.catalogue import CATALOGUE
from replicas.metrics.samples import Distribution, Sample
from replicas.metrics.series import Series
from replicas.metrics.vllm_series import PREFIX

logger = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Of a scrape."""

_FAMILIES: dict[str, Callable[..., Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}

_Values = dict[tuple[str, ...], float | Distribution]


def render(samples: Iterable[Sample], vllm_names: bool = True) -> bytes:
    """Return a scrape's body.

    Every family is described once, whichever processes its samples are from. Of two samples with
    the same labels the first counts. A sample that the catalogue does not have, as of another
    version during a roll-out, is left out.

    Args:
        samples: What was measured.
        vllm_names: Whether to show the series under vLLM's names.
    """
    return generate_latest(_Families(samples, vllm_names))


class _Families(Collector):
    """The families of samples, in the order of the catalogue."""

    def __init__(self, samples: Iterable[Sample], vllm_names: bool) -> None:
        self._found: dict[str, _Values] = {}
        self._vllm_names = vllm_names
        for sample in samples:
            series = CATALOGUE.get(sample.name)
            if series is None or sample.labels.keys() != set(series.labels):
                logger.error("no such series: %s%s", sample.name, sorted(sample.labels))
                continue
            labels = tuple(sample.labels[label] for label in series.labels)
            self._found.setdefault(sample.name, {}).setdefault(labels, sample.value)

    def collect(self) -> Iterator[Metric]:
        for name, series in CATALOGUE.items():
            if name in self._found and (self._vllm_names or not name.startswith(PREFIX)):
                yield _family(series, self._found[name])


def _family(series: Series, values: _Values) -> Metric:
    name = series.name.removesuffix("_total") if series.kind == "counter" else series.name
    family = _FAMILIES[series.kind](name, series.help, labels=series.labels)
    for labels, value in values.items():
        if isinstance(value, Distribution):
            family.add_metric(labels, _buckets(value), value.total)
        else:
            family.add_metric(labels, value)
    result: Metric = family
    return result


def _buckets(distribution: Distribution) -> list[tuple[str, float]]:
    """Return how many values are at most each bound, the last one being infinity."""
    bounds = (*distribution.bounds, float("inf"))
    cumulated = accumulate(distribution.counts)
    return [
        (floatToGoString(bound), float(count))  # type: ignore[no-untyped-call]  # it has no types
        for bound, count in zip(bounds, cumulated, strict=True)
    ]
