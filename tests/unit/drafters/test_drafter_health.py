from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drafters.health import EJECT_AFTER, FIRST_BACKOFF_S, MAX_BACKOFF_S, WorkerHealth


def failed(times: int, now: float = 0.0) -> WorkerHealth:
    health = WorkerHealth()
    for _ in range(times):
        health.record_failure("late", now)
    return health


def test_some_failures_in_a_row_eject() -> None:
    assert not failed(EJECT_AFTER - 1).is_ejected
    assert failed(EJECT_AFTER).is_ejected


def test_a_success_between_failures_keeps_a_worker() -> None:
    health = failed(EJECT_AFTER - 1)
    health.record_success()
    health.record_failure("late", 1.0)
    assert not health.is_ejected
    assert health.away_since == 1.0
    assert health.reasons["late"] == EJECT_AFTER


def test_a_worker_that_is_away_is_ejected_at_once() -> None:
    health = WorkerHealth()
    health.record_failure("away", 3.0)
    assert health.is_ejected
    assert health.away_since == 3.0


def test_probes_come_once_a_backoff() -> None:
    health = failed(EJECT_AFTER, now=10.0)
    assert not health.take_probe(10.0 + FIRST_BACKOFF_S / 2)
    assert health.take_probe(10.0 + FIRST_BACKOFF_S)
    assert not health.take_probe(10.0 + FIRST_BACKOFF_S)
    assert health.take_probe(10.0 + 2 * FIRST_BACKOFF_S)


def test_a_probe_readmits_on_probation() -> None:
    """PL-2: nothing is given up for ever, and what keeps failing is left alone for longer."""
    health = failed(EJECT_AFTER)
    health.record_probe_answered()
    assert not health.is_ejected
    health.record_failure("late", 20.0)
    assert health.is_ejected
    assert not health.take_probe(20.0 + FIRST_BACKOFF_S)
    assert health.take_probe(20.0 + 2 * FIRST_BACKOFF_S)


def test_a_draft_ends_probation() -> None:
    health = failed(EJECT_AFTER)
    health.record_probe_answered()
    health.record_success()
    health.record_failure("late", 20.0)
    assert not health.is_ejected


@given(st.integers(EJECT_AFTER, 60))
def test_backoff_is_bounded(times: int) -> None:
    assert failed(times).take_probe(MAX_BACKOFF_S)
