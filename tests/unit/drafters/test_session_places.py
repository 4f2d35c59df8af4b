from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from drafters.api import ClosedSession
from drafters.places import SessionPlaces

WORKERS = [("pld", replica, "1") for replica in ("a", "b", "c")]


@given(st.lists(st.booleans(), max_size=40))
def test_sessions_spread_evenly_whatever_comes_and_goes(opens: list[bool]) -> None:
    places = SessionPlaces()
    for index in range(9):
        places.assign(f"s{index}", "pld", WORKERS)
    for index, stays in enumerate(opens, start=9):
        places.assign(f"s{index}", "pld", WORKERS)
        if not stays:
            places.close(f"s{index}")
    kept = [f"s{index}" for index in range(9)]
    kept += [f"s{index}" for index, stays in enumerate(opens, start=9) if stays]
    load = Counter(worker for session in kept for worker, _ in places.close(session))
    assert max(load.values()) - min(load[worker] for worker in WORKERS) <= 1
    assert len(places) == 0


def test_a_session_stays_and_says_where_it_was() -> None:
    places = SessionPlaces()
    first, left = places.assign("s", "pld", WORKERS)
    assert left is None
    assert places.assign("s", "pld", WORKERS) == (first, None)
    others = [worker for worker in WORKERS if worker != first]
    second, left = places.assign("s", "pld", others)
    assert (second in others, left) == (True, first)
    assert places.close("s") == [(second, ClosedSession("s"))]


def test_replicas_that_know_nothing_of_each_other_choose_differently() -> None:
    first = {SessionPlaces().assign(f"s{index}", "pld", WORKERS)[0] for index in range(20)}
    assert len(first) == len(WORKERS)


def test_sessions_that_moved_away_are_no_load() -> None:
    places = SessionPlaces()
    first, second, _ = WORKERS
    for session_id in ("s0", "s1"):
        places.assign(session_id, "pld", [first])
        places.assign(session_id, "pld", [second])
    for session_id in ("s2", "s3"):
        assert places.assign(session_id, "pld", [first, second])[0] == first
