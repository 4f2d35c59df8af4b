from __future__ import annotations

import time

from drafters.api import ClosedSession, DraftBatch
from drafters.calls import Call
from drafters.dispatch import Dispatcher
from drafters.fleet import Fleet
from tests.unit.drafters.workers import PostTransport, Worker


def test_what_a_busy_worker_could_not_be_told_is_kept() -> None:
    dispatcher = Dispatcher({"worker": PostTransport()}, time.monotonic)
    fleet = Fleet(["pld"], [], dispatcher, time.monotonic)
    fleet.stop()
    worker = Worker()
    member = worker.member()
    fleet.set_members([member])
    worker.paused = True
    dispatcher.call([Call(member, DraftBatch(()), 0.0)])
    fleet.close(member.key, [ClosedSession("a")])
    assert fleet.tick()
    assert len(worker.batches) == 1
    worker.resume()
    assert not fleet.tick()
    assert worker.batches[-1] == DraftBatch((), (ClosedSession("a"),))


def test_what_a_lost_worker_was_to_be_told_is_dropped() -> None:
    fleet = Fleet(["pld"], [], Dispatcher({"worker": PostTransport()}, time.monotonic), time.time)
    fleet.stop()
    member = Worker().member()
    fleet.set_members([member])
    fleet.close(member.key, [ClosedSession("a")])
    fleet.set_members([])
    assert not fleet.tick()
    assert fleet.take_closed(member) == ()


def test_members_of_unknown_drafters_are_ignored() -> None:
    fleet = Fleet(["pld"], [], Dispatcher({}, time.monotonic), time.monotonic)
    fleet.set_members([Worker(name="other").member()])
    assert fleet.num_workers("other") == 0
    assert fleet.versions() == {}
