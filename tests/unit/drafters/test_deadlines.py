"""How long a step waits for a worker, and what it thinks of one that is late."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.api import NoiseKey
from drafters.client import DrafterClient, DraftResult, DraftWanted
from drafters.config import DrafterConfig
from drafters.deadlines import Deadlines, RoundTrips
from drafters.health import EJECT_AFTER
from tests.unit.drafters.workers import PostTransport, Worker, until

KEY = ("pld", "r", "1")
LIMIT_MS = 400.0
LEAST_MS = 20.0
TEXT = [1, 2, 3, 4, 1, 2]


def deadline(deadlines: Deadlines, *, opens: bool = False) -> float:
    return deadlines.deadline_ms(KEY, 5.0, 250.0, opens=opens)


def test_of_an_unknown_worker_the_most_is_expected() -> None:
    deadlines = Deadlines()
    assert deadline(deadlines) == 250.0
    deadlines.observe(KEY, 3.0, opens=True)
    assert deadline(deadlines) == 250.0
    assert deadline(deadlines, opens=True) == pytest.approx(9.0)


def test_the_estimate_is_that_of_rfc_6298() -> None:
    """Section 2: R, R/2 at first; then 3/4 and 1/4 of the deviation, 7/8 and 1/8 of the mean."""
    trips = RoundTrips()
    assert trips.bound_ms() is None
    trips.observe(10.0)
    assert trips.bound_ms() == 10.0 + 4 * 5.0
    trips.observe(18.0)
    assert trips.bound_ms() == 11.0 + 4 * (0.75 * 5.0 + 0.25 * 8.0)
    trips.observe(3.0)
    assert trips.bound_ms() == 10.0 + 4 * (0.75 * 5.75 + 0.25 * 8.0)


@given(st.lists(st.floats(0.01, 10_000.0), min_size=1, max_size=50))
def test_deadlines_stay_within_their_bounds(times: list[float]) -> None:
    deadlines = Deadlines()
    for ms in times:
        deadlines.observe(KEY, ms, opens=False)
        assert 5.0 <= deadline(deadlines) <= 250.0


def test_a_steady_worker_is_waited_for_little_longer_than_it_takes() -> None:
    deadlines = Deadlines()
    for _ in range(40):
        deadlines.observe(KEY, 10.0, opens=False)
    assert deadline(deadlines) == pytest.approx(10.0, rel=0.01)
    deadlines.observe(KEY, 100.0, opens=False)
    assert deadline(deadlines) > 100.0
    for _ in range(40):
        deadlines.observe(KEY, 10.0, opens=False)
    assert deadline(deadlines) < 13.0


@given(st.lists(st.floats(8.0, 12.0), min_size=30, max_size=60))
def test_usual_jitter_is_not_late(times: list[float]) -> None:
    deadlines = Deadlines()
    for ms in (8.0, 12.0) * 10:
        deadlines.observe(KEY, ms, opens=False)
    assert deadline(deadlines) > 12.0


def test_workers_that_are_gone_are_forgotten() -> None:
    deadlines = Deadlines()
    deadlines.observe(KEY, 3.0, opens=False)
    deadlines.forget_all_but([("pld", "r", "2")])
    assert deadline(deadlines) == 250.0


@pytest.fixture
def client() -> Iterator[DrafterClient]:
    config = DrafterConfig(deadline_ms=LIMIT_MS, min_deadline_ms=LEAST_MS)
    drafters = DrafterClient({"pld": config}, transports={"worker": PostTransport()})
    yield drafters
    drafters.stop()


@pytest.fixture
def worker(client: DrafterClient) -> Worker:
    """A worker that is known to be fast."""
    worker = Worker()
    client.set_members([worker.member()])
    assert [draft(client).status for _ in range(5)] == ["ok"] * 5
    return worker


def draft(client: DrafterClient, worth_ms: float | None = None) -> DraftResult:
    return client.draft([DraftWanted("s", "pld", 2, TEXT, 3, NoiseKey(0, 0, 0.0))], worth_ms)[0]


def is_up(client: DrafterClient) -> bool:
    return bool(client.status()[0]["up"])


def test_a_fast_worker_that_stands_still_costs_little(
    client: DrafterClient, worker: Worker
) -> None:
    worker.paused = True
    started = time.monotonic()
    assert draft(client).status == "late"
    assert LEAST_MS * 0.9 < (time.monotonic() - started) * 1e3 < LIMIT_MS * 0.8
    assert [draft(client).status for _ in range(2 * EJECT_AFTER)] == ["late"] * 2 * EJECT_AFTER
    assert is_up(client)
    until(lambda: draft(client).status == "away")
    assert (time.monotonic() - started) * 1e3 > LIMIT_MS * 0.9
    assert not is_up(client)
    assert worker.num_unanswered == 1


def test_a_worker_that_is_late_now_and_then_stays(client: DrafterClient, worker: Worker) -> None:
    for _ in range(2 * EJECT_AFTER):
        worker.paused = True
        assert draft(client).status == "late"
        worker.resume()
        assert draft(client).status == "ok"
    assert is_up(client)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("late_s", "then_ms"), [(0.1, 112.5), (9.0, LIMIT_MS)])
def test_answers_that_come_too_late_are_learnt_from(late_s: float, then_ms: float) -> None:
    """Else a worker that has become slower would be late for ever."""
    clock = Clock()
    config = DrafterConfig(deadline_ms=LIMIT_MS, min_deadline_ms=LEAST_MS)
    client = DrafterClient({"pld": config}, clock, transports={"worker": PostTransport()})
    worker = Worker()
    client.set_members([worker.member()])
    assert [draft(client).status for _ in range(3)] == ["ok"] * 3
    worker.paused = True
    assert draft(client).wait_ms == pytest.approx(LEAST_MS)
    clock.now += late_s
    worker.resume()
    worker.paused = True
    late = draft(client)
    assert late.status == "late"
    assert late.wait_ms == pytest.approx(then_ms)
    assert client.status()[0]["cost"]["round_trip_ms"]["count"] == 4
    client.stop()


def test_no_step_waits_longer_than_it_pays(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    worker.paused = True
    started = time.monotonic()
    late = draft(client, worth_ms=10.0)
    assert late.status == "late"
    assert 10.0 <= late.wait_ms < LIMIT_MS * 0.8
    assert (time.monotonic() - started) * 1e3 < LIMIT_MS * 0.8
    assert draft(client, worth_ms=0.0).status == "late"
    assert is_up(client)
    worker.resume()
    assert draft(client, worth_ms=1e6).status == "ok"


def test_being_late_for_a_step_in_a_hurry_excuses_no_failures(
    client: DrafterClient, worker: Worker
) -> None:
    worker.error = RuntimeError("planned")
    assert [draft(client).status for _ in range(EJECT_AFTER - 1)] == ["failed"] * (EJECT_AFTER - 1)
    worker.paused = True
    assert draft(client, worth_ms=1.0).status == "late"
    worker.resume()
    assert draft(client).status == "away"
