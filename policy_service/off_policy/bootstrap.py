"""From sums over rounds to estimates with intervals, by a bootstrap over requests.

The rounds of a request depend on each other, so requests are drawn, not rounds. Intervals are of
95 %, by percentiles. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from policy_service.off_policy.sums import ReplySums

Floats = NDArray[np.float64]

_CHUNK = 100
_COLUMNS = {entry.name: index for index, entry in enumerate(fields(ReplySums))}
_FIGURES = ("round", "second", "gain")
_RATIOS = {
    "log": ("log_tokens", "rounds", "log_seconds"),
    "replay": ("learnt_tokens", "learnt", "learnt_seconds"),
    "snips": ("weighted_tokens", "weight", "weighted_seconds"),
    "doubly_robust": ("robust_tokens", "rounds", "robust_seconds"),
}
"""Of each estimator: tokens, and what they are divided by for a round and for a second."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95 % interval; nan where there is nothing to estimate from."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a learner yields.

    Attributes:
        tokens_per_round: Tokens of a round.
        tokens_per_second: Tokens that a Verifier emits in a second of decoding.
        gain: That, over the same of the log's own choices.
    """

    tokens_per_round: Interval
    tokens_per_second: Interval
    gain: Interval


def column(sums: Floats, name: str) -> Floats:
    """Return one of the sums by its name in ``ReplySums``."""
    column: Floats = sums[..., _COLUMNS[name]]
    return column


def estimates_of(
    by_request: Floats, num_resamples: int, rng: np.random.Generator
) -> dict[str, Estimate]:
    """Return the estimate of every estimator, and that of the log's own choices as ``log``.

    Args:
        by_request: Sums of each request, ``[num_requests, len(ReplySums)]``.
        num_resamples: Resamples to take intervals from.
        rng: Draws them.
    """
    values = _figures(by_request.sum(axis=0))
    resampled = _figures(_resampled(by_request, num_resamples, rng))
    return {
        name: Estimate(*(_interval(values[name, what], resampled[name, what]) for what in _FIGURES))
        for name in _RATIOS
    }


def _figures(sums: Floats) -> dict[tuple[str, str], Floats]:
    """Return every figure of every estimator, from sums ``[..., len(ReplySums)]``."""
    figures: dict[tuple[str, str], Floats] = {}
    for name, (tokens, rounds, seconds) in _RATIOS.items():
        figures[name, "round"] = _ratio(column(sums, tokens), column(sums, rounds))
        figures[name, "second"] = _ratio(column(sums, tokens), column(sums, seconds))
        figures[name, "gain"] = _ratio(figures[name, "second"], figures["log", "second"])
    return figures


def _ratio(above: Floats, below: Floats) -> Floats:
    """Return a quotient, nan where there is nothing to divide by."""
    is_positive = below > 0
    return np.where(is_positive, above / np.where(is_positive, below, 1.0), np.nan)


def _resampled(by_request: Floats, num_resamples: int, rng: np.random.Generator) -> Floats:
    """Return the sums of resamples of the requests, ``[num_resamples, len(ReplySums)]``."""
    count = len(by_request)
    chunks = []
    for start in range(0, num_resamples, _CHUNK):
        size = min(_CHUNK, num_resamples - start)
        times = rng.multinomial(count, np.full(count, 1 / count), size)
        chunks.append(times @ by_request)
    return np.concatenate(chunks)


def _interval(value: Floats, resampled: Floats) -> Interval:
    defined = resampled[np.isfinite(resampled)]
    if not len(defined):
        return Interval(float(value), np.nan, np.nan)
    low, high = np.quantile(defined, [0.025, 0.975])
    return Interval(float(value), float(low), float(high))
