"""Workers that say they are full, and callers that go elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from drafters.api import (
    Busy,
    ClosedSession,
    Draft,
    DraftBatch,
    DraftBatchReply,
    DraftRequest,
    NoiseKey,
    SessionContext,
)
from drafters.client import DrafterClient, DraftWanted
from drafters.config import DrafterConfig
from drafters.draft_queue import DraftQueue
from drafters.fleet import BUSY_S
from drafters.methods.prompt_lookup import PromptLookup
from drafters.session_table import SessionTable
from drafters.sessions import DraftServer
from tests.unit.drafters.workers import PostTransport, Worker, until

TEXT = (1, 2, 3, 4, 1, 2)
NOISE = NoiseKey(0, 0, 0.0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(clock: Clock) -> Iterator[DrafterClient]:
    config = DrafterConfig(deadline_ms=1_000)
    drafters = DrafterClient({"pld": config}, clock, transports={"worker": PostTransport()})
    yield drafters
    drafters.stop()


def small(replica_id: str, max_sessions: int) -> Worker:
    worker = Worker(replica_id)
    worker.server = DraftServer(
        PromptLookup(), "start 1", time.perf_counter, SessionTable(max_sessions)
    )
    return worker


def statuses(client: DrafterClient, names: Sequence[str]) -> list[str]:
    wanted = [DraftWanted(name, "pld", 2, TEXT, 3, NOISE) for name in names]
    return [result.status for result in client.draft(wanted)]


def test_sessions_for_which_there_is_no_room_go_elsewhere(client: DrafterClient) -> None:
    full, empty = small("a", 1), small("b", 9)
    client.set_members([full.member(), empty.member()])
    names = [f"s{index}" for index in range(6)]
    first = statuses(client, names)
    assert (first.count("ok"), first.count("busy")) == (4, 2)
    assert statuses(client, names) == ["ok"] * 6
    assert len(full.batches[-1].requests) == 1
    assert client.status()[0]["by_reason"] == {"busy": 2}
    assert client.status()[0]["up"]


def test_a_full_worker_is_asked_for_what_it_has_and_later_for_more(
    client: DrafterClient, clock: Clock
) -> None:
    worker = small("a", 2)
    client.set_members([worker.member()])
    assert statuses(client, ["s0", "s1", "s2"]) == ["ok", "ok", "busy"]
    assert statuses(client, ["s0", "s1", "s2"]) == ["ok", "ok", "busy"]
    assert len(worker.batches[-1].requests) == 2
    client.close("s0")
    clock.now += BUSY_S
    assert statuses(client, ["s1", "s2"]) == ["ok", "ok"]


def test_a_worker_at_which_too_many_wait_is_spared_for_a_while(
    client: DrafterClient, clock: Clock
) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    assert statuses(client, ["s"]) == ["ok"]
    worker.forge = lambda reply: DraftBatchReply(reply.incarnation, (Busy("queue"),), 0.0)
    assert statuses(client, ["s"]) == ["busy"]
    worker.forge = None
    num_batches = len(worker.batches)
    assert statuses(client, ["s", "t"]) == ["busy", "busy"]
    assert len(worker.batches) == num_batches
    clock.now += BUSY_S
    assert statuses(client, ["s", "t"]) == ["ok", "ok"]
    assert worker.batches[-1].requests[0].context is None


def test_new_sessions_go_past_a_worker_at_which_too_many_wait(client: DrafterClient) -> None:
    crowded, other = Worker("a"), Worker("b")
    client.set_members([crowded.member(), other.member()])
    crowded.forge = lambda reply: DraftBatchReply(
        reply.incarnation, (Busy("queue"),) * len(reply.drafts), 0.0
    )
    names = [f"s{index}" for index in range(6)]
    assert statuses(client, names).count("busy") == 3
    assert statuses(client, names) == ["ok"] * 6
    assert len(crowded.batches) == 1


class Slow(PromptLookup):
    """Proposes once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.may_go_on = threading.Event()

    def propose(self, wanted: Sequence[tuple[str, int]]) -> list[Draft]:
        self.begun.set()
        assert self.may_go_on.wait(5.0)
        return super().propose(wanted)


def opening(session_id: str) -> DraftBatch:
    context = SessionContext(TEXT, 3, NOISE)
    return DraftBatch((DraftRequest(session_id, 0, (), 2, context),))


def until_waiting(queue: DraftQueue, num_calls: int) -> None:
    until(lambda: queue.num_waiting == num_calls)


def test_a_queue_refuses_what_would_wait_too_long_and_says_how_long_the_others_did() -> None:
    drafter = Slow()
    queue = DraftQueue(DraftServer(drafter, "1", time.perf_counter), time.perf_counter, 2)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(queue.call, opening("a"))
        assert drafter.begun.wait(5.0)
        others = [pool.submit(queue.call, opening(name)) for name in "bc"]
        until_waiting(queue, 2)
        refused = queue.call(opening("d"))
        assert refused.drafts == (Busy("queue"),)
        assert not first.done()
        errand = pool.submit(queue.call, DraftBatch((), (ClosedSession("x"),)))
        until_waiting(queue, 3)
        drafter.may_go_on.set()
        replies = [future.result(5.0) for future in (first, *others)]
        assert errand.result(5.0).drafts == ()
    assert all(isinstance(reply.drafts[0], Draft) for reply in replies)
    assert min(reply.queue_ms for reply in replies[1:]) > 0.0
    assert queue.num_refused == 1
    queue.stop()


def test_a_queue_answers_in_turn_and_tidies_up_when_nobody_waits() -> None:
    done: list[str] = []

    class Noting(Slow):
        def open(self, session_id: str, context: SessionContext) -> None:
            done.append(f"open {session_id}")
            super().open(session_id, context)

        def close(self, session_id: str) -> None:
            done.append(f"close {session_id}")
            super().close(session_id)

    drafter = Noting()
    queue = DraftQueue(DraftServer(drafter, "1", time.perf_counter), time.perf_counter)
    with ThreadPoolExecutor(4) as pool:
        closing = DraftBatch(opening("a").requests, (ClosedSession("x"), ClosedSession("y")))
        calls = [pool.submit(queue.call, closing)]
        assert drafter.begun.wait(5.0)
        for waiting, name in enumerate("bcd", start=1):
            calls.append(pool.submit(queue.call, opening(name)))
            until_waiting(queue, waiting)
        queue.wake()
        drafter.may_go_on.set()
        for call in calls:
            call.result(5.0)
    until(lambda: len(done) == 6)
    assert done == [*(f"open {name}" for name in "abcd"), "close x", "close y"]
    queue.stop()


def test_a_queue_that_is_stopped_answers_those_that_wait() -> None:
    drafter = Slow()
    queue = DraftQueue(DraftServer(drafter, "1", time.perf_counter), time.perf_counter)
    queue.server.answer(DraftBatch((), (ClosedSession("x"),)))
    replies: list[DraftBatchReply] = []

    def call(session_id: str) -> None:
        replies.append(queue.call(opening(session_id)))

    # daemons: a caller that is never answered must not keep the tests from ending
    threading.Thread(target=call, args=("a",), daemon=True).start()
    assert drafter.begun.wait(5.0)
    queue.wake()
    threading.Thread(target=call, args=("b",), daemon=True).start()
    until_waiting(queue, 2)
    threading.Thread(target=queue.stop, daemon=True).start()
    until_waiting(queue, 3)
    drafter.may_go_on.set()
    until(lambda: len(replies) == 2)


def test_nothing_is_tidied_up_during_a_call() -> None:
    drafter = Slow()
    server = DraftServer(drafter, "1", time.perf_counter)
    server.answer(DraftBatch((), (ClosedSession("x"),)))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(server.answer, opening("a"))
        assert drafter.begun.wait(5.0)
        assert server.tidy() == 0.0
        server.sweep()
        assert server.load().num_closing == 1
        drafter.may_go_on.set()
        call.result(5.0)
    assert server.tidy() is None
    assert server.load().num_closing == 0


def test_a_queue_tidies_up_by_itself() -> None:
    queue = DraftQueue(DraftServer(PromptLookup(), "1", time.perf_counter), time.perf_counter)
    queue.call(opening("a"))
    queue.call_here(opening("b"))
    queue.call(DraftBatch((), (ClosedSession("a"),)))
    queue.call_here(DraftBatch((), (ClosedSession("b"),)))
    until(lambda: not queue.server.has_backlog)
    assert [queue.server.drafter.position(name) for name in "ab"] == [0, 0]
    queue.stop()


def test_a_queue_survives_a_drafter_that_raises() -> None:
    class Broken(PromptLookup):
        def propose(self, wanted: Sequence[tuple[str, int]]) -> list[Draft]:
            raise RuntimeError("planned")

        def close(self, session_id: str) -> None:
            raise RuntimeError("planned, too")

    queue = DraftQueue(DraftServer(Broken(), "1", time.perf_counter), time.perf_counter)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="planned"):
            queue.call(opening("a"))
        queue.call(DraftBatch((), (ClosedSession("a"),)))
    until(lambda: not queue.server.has_backlog)
    queue.stop()
