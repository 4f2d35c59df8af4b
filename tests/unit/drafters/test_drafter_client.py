"""The client against workers in this process that are late, die or lie when told to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import cast

import pytest

from drafters.api import ClosedSession, Draft, DraftBatch, DraftBatchReply, NeedContext, NoiseKey
from drafters.client import DrafterClient, DraftResult, DraftWanted
from drafters.config import DrafterConfig
from drafters.health import EJECT_AFTER
from drafters.methods.prompt_lookup import PromptLookup
from tests.unit.drafters.workers import GoneError, PostTransport, Worker, until

DEADLINE_MS = 150.0
TEXT = [1, 2, 3, 4, 1, 2]
NOISE = NoiseKey(0, 0, 0.0)


CONFIG = DrafterConfig(deadline_ms=DEADLINE_MS, min_deadline_ms=DEADLINE_MS)


def make_client(clock: Callable[[], float]) -> DrafterClient:
    configs = {"pld": CONFIG, "other": CONFIG}
    transports = {"worker": PostTransport()}
    return DrafterClient(configs, clock, vocab_size=100, transports=transports)


@pytest.fixture
def client() -> Iterator[DrafterClient]:
    """Its clock stands still, so a loaded machine makes nobody late; waits take their time."""
    drafters = make_client(lambda: 0.0)
    yield drafters
    drafters.stop()


@pytest.fixture
def live_client() -> Iterator[DrafterClient]:
    """One whose clock goes."""
    drafters = make_client(time.monotonic)
    yield drafters
    drafters.stop()


def want(
    session_id: str = "s", token_ids: Sequence[int] = TEXT, most: int = 2, drafter: str = "pld"
) -> DraftWanted:
    return DraftWanted(session_id, drafter, most, token_ids, 3, NOISE)


def one(client: DrafterClient, wanted: DraftWanted | None = None) -> DraftResult:
    return client.draft([wanted or want()])[0]


def status(client: DrafterClient, name: str = "pld") -> dict[str, object]:
    return next(entry for entry in client.status() if entry["name"] == name)


def test_drafts_and_sends_only_what_is_missed(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    result = one(client)
    assert (result.status, result.draft.token_ids) == ("ok", (3, 4))
    assert worker.batches[-1].requests[0].context is not None
    result = one(client, want(token_ids=[*TEXT, 3, 4]))
    assert (result.status, result.draft.token_ids) == ("ok", (1, 2))
    request = worker.batches[-1].requests[0]
    assert (request.context, request.position, request.new_token_ids) == (None, 6, (3, 4))
    assert status(client)["draft_tokens"] == 4
    assert client.versions() == {"pld": PromptLookup().version}


def test_one_call_carries_all_sequences(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    results = client.draft([want("a"), want("b", [5, 6, 5]), want("c", [1, 2, 3])])
    assert [result.status for result in results] == ["ok", "ok", "empty"]
    assert [result.draft.token_ids for result in results] == [(3, 4), (6, 5), ()]
    assert len(worker.batches) == 1


def test_no_worker_is_away_and_an_unknown_drafter_too(client: DrafterClient) -> None:
    """PL-2: a drafter that is not there costs a draft, not a request."""
    assert [result.status for result in client.draft([want(), want(drafter="nobody")])] == [
        "away",
        "away",
    ]
    state = status(client)
    assert (state["up"], state["done_without"], state["by_reason"]) == (False, 1, {"away": 1})
    assert time.time() - cast(float, state["away_since"]) < 60


def test_nothing_wanted_is_no_call(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    assert one(client, want(most=0)).status == "empty"
    assert client.draft([]) == []
    assert worker.batches == []


def test_a_late_worker_costs_one_deadline_and_no_pile(live_client: DrafterClient) -> None:
    """PL-2: a paused worker holds up one step, gets no further calls, and is used again."""
    worker = Worker()
    worker.paused = True
    live_client.set_members([worker.member()])
    started = time.monotonic()
    assert one(live_client).status == "late"
    waited_ms = (time.monotonic() - started) * 1e3
    assert DEADLINE_MS * 0.9 < waited_ms < DEADLINE_MS * 5
    waits_ms, statuses = [], []
    for _ in range(10):
        started = time.monotonic()
        statuses.append(one(live_client).status)
        waits_ms.append((time.monotonic() - started) * 1e3)
    assert min(waits_ms[: EJECT_AFTER - 1]) < DEADLINE_MS * 0.9
    assert statuses == ["late"] * (EJECT_AFTER - 1) + ["away"] * (11 - EJECT_AFTER)
    assert worker.num_unanswered == 1
    assert status(live_client)["up"] is False
    worker.resume()
    until(lambda: one(live_client).draft.token_ids == (3, 4))
    assert status(live_client)["up"] is True
    assert status(live_client)["away_since"] is None


def test_time_spent_before_a_call_is_sent_does_not_excuse_the_worker() -> None:
    """A step that waited its whole deadline counts against the worker it waited for."""
    readings = count()
    client = make_client(lambda: time.monotonic() + 0.005 * next(readings))
    worker = Worker()
    worker.paused = True
    client.set_members([worker.member()])
    assert [one(client).status for _ in range(EJECT_AFTER)] == ["late"] * EJECT_AFTER
    assert one(client).status == "away"
    client.stop()


def test_after_a_late_answer_the_session_goes_on_from_it(client: DrafterClient) -> None:
    """A drafter that takes longer to open a session than a step waits is not asked to for ever."""
    worker = Worker()
    client.set_members([worker.member()])
    worker.paused = True
    assert one(client).status == "late"
    worker.resume()
    result = one(client, want(token_ids=[*TEXT, 3, 4]))
    assert (result.status, result.draft.token_ids) == ("ok", (1, 2))
    request = worker.batches[-1].requests[0]
    assert (request.context, request.position, request.new_token_ids) == (None, 6, (3, 4))


def test_after_a_late_failure_the_context_is_sent_again(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    one(client)
    worker.paused = True
    one(client, want(token_ids=[*TEXT, 3]))
    worker.error = RuntimeError("planned")
    worker.resume()
    worker.error = None
    result = one(client, want(token_ids=[*TEXT, 3, 4]))
    assert (result.status, result.draft.token_ids) == ("ok", (1, 2))
    assert worker.batches[-1].requests[0].context is not None


def test_a_late_answer_of_a_restarted_worker_says_nothing_of_sessions(
    client: DrafterClient,
) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    one(client)
    worker.paused = True
    one(client, want(token_ids=[*TEXT, 3]))
    worker.forge = lambda reply: DraftBatchReply("start 2", (Draft((99,), (-1,)),), 0.0)
    worker.resume()
    worker.forge = None
    one(client, want(token_ids=[*TEXT, 3, 4]))
    assert [batch.requests[0].context is None for batch in worker.batches] == [False, True, False]


def test_slow_and_fast_workers_are_waited_for_once(client: DrafterClient) -> None:
    slow, fast = Worker("slow"), Worker("fast", "other")
    slow.paused = True
    client.set_members([slow.member(), fast.member()])
    late, there = client.draft([want(), want(drafter="other")])
    assert (late.status, there.status) == ("late", "ok")
    assert there.wait_ms < DEADLINE_MS / 2 < late.wait_ms


def test_a_drafter_that_raises_fails_the_call_only(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    worker.error = RuntimeError("planned")
    assert one(client).status == "failed"
    worker.error = None
    assert one(client).status == "ok"


def test_need_context_is_answered_within_the_same_call(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    one(client)
    worker.server.answer(DraftBatch((), (ClosedSession("s"),)))
    result = one(client, want(token_ids=[*TEXT, 3]))
    assert (result.status, result.draft.token_ids) == ("ok", (4, 1))
    assert len(worker.batches) == 3


def test_a_worker_that_never_has_the_context(client: DrafterClient) -> None:
    worker = Worker()
    worker.forge = lambda reply: DraftBatchReply(reply.incarnation, (NeedContext(0),), 0.0)
    client.set_members([worker.member()])
    assert one(client).status == "need_context"
    assert len(worker.batches) == 2


def test_a_draft_under_a_stale_session_is_not_used(client: DrafterClient) -> None:
    """PL-2: fencing by incarnation, also where the new process claims to know the session."""
    worker = Worker()
    client.set_members([worker.member()])
    one(client)
    worker.forge = lambda reply: DraftBatchReply(
        "start 2", (Draft((99,), (-1,)),) if len(worker.batches) == 2 else reply.drafts, 0.0
    )
    result = one(client, want(token_ids=[*TEXT, 3]))
    assert (result.status, result.draft.token_ids) == ("ok", (4, 1))
    assert [batch.requests[0].context is None for batch in worker.batches] == [False, True, False]
    one(client, want(token_ids=[*TEXT, 3, 4]))
    assert worker.batches[-1].requests[0].context is None


def test_a_new_incarnation_has_none_of_the_other_sessions_either(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    client.draft([want("a"), want("b")])
    worker.forge = lambda reply: DraftBatchReply("start 2", reply.drafts, 0.0)
    one(client, want("a"))
    one(client, want("b"))
    assert worker.batches[-1].requests[0].session_id == "b"
    assert worker.batches[-1].requests[0].context is not None
    assert len(worker.batches) == 4


def test_a_restarted_worker_is_known_by_its_incarnation(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    one(client)
    worker.error = GoneError("planned")
    assert one(client).status == "away"
    assert status(client)["up"] is False
    worker.restart()
    client.set_members([worker.member()])
    assert status(client)["up"] is True
    assert one(client, want(token_ids=[*TEXT, 3])).draft.token_ids == (4, 1)
    assert worker.batches[-1].requests[0].context is not None


def test_sessions_move_to_another_worker_and_stay_there(client: DrafterClient) -> None:
    workers = {replica_id: Worker(replica_id) for replica_id in ("r1", "r2")}
    client.set_members([worker.member() for worker in workers.values()])
    assert {result.status for result in client.draft([want(f"s{i}") for i in range(8)])} == {"ok"}
    assert [len(worker.batches[0].requests) for worker in workers.values()] == [4, 4]
    workers["r1"].error = GoneError("planned")
    client.draft([want(f"s{i}") for i in range(8)])
    results = client.draft([want(f"s{i}") for i in range(8)])
    assert [result.draft.token_ids for result in results] == [(3, 4)] * 8
    assert len(workers["r2"].batches[-1].requests) == 8


@pytest.mark.parametrize(
    "draft",
    [
        Draft((1, 2, 3), (-1, 0, 1)),
        Draft((100,), (-1,)),
        Draft((-1,), (-1,)),
        Draft((True,), (-1,)),
        "no draft",
    ],
)
def test_malformed_drafts_are_not_used(client: DrafterClient, draft: object) -> None:
    worker = Worker()
    worker.forge = lambda reply: DraftBatchReply(
        reply.incarnation,
        (draft,),  # type: ignore[arg-type]  # wrong on purpose
        0.0,
    )
    client.set_members([worker.member()])
    result = one(client)
    assert (result.status, len(result.draft)) == ("malformed", 0)
    assert status(client)["by_reason"] == {"malformed": 1}


@pytest.mark.parametrize("reply", [None, DraftBatchReply("start 1", (), 0.0)])
def test_malformed_replies_are_not_used(client: DrafterClient, reply: object) -> None:
    worker = Worker()
    worker.forge = lambda _: reply
    client.set_members([worker.member()])
    assert one(client).status == "malformed"


def test_a_larger_draft_than_the_worker_makes_is_not_asked_for(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    assert len(one(client, want(most=50)).draft) == 8


def test_closed_sessions_reach_the_worker_without_a_further_call(client: DrafterClient) -> None:
    """PL-2: bounded clean-up; the worker's memory returns to zero."""
    worker = Worker()
    client.set_members([worker.member()])
    client.draft([want(f"s{i}") for i in range(5)])
    assert worker.server.load().num_sessions == 5
    for i in range(5):
        client.close(f"s{i}")
    client.close("nobody")
    until(lambda: worker.server.load().num_sessions == 0)


def test_closed_sessions_wait_for_a_paused_worker(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    client.draft([want("a"), want("b")])
    worker.paused = True
    one(client, want("a"))
    client.close("a")
    client.close("b")
    assert one(client, want("c")).status == "late"
    worker.resume()
    until(lambda: worker.server.load().num_sessions == 0)


def test_a_worker_forgets_the_sessions_that_moved_away(live_client: DrafterClient) -> None:
    worker, other = Worker("r1"), Worker("r2")
    live_client.set_members([worker.member()])
    one(live_client)
    worker.paused = True
    live_client.set_members([worker.member(), other.member()])
    until(lambda: one(live_client).status == "ok")
    assert other.server.load().num_sessions == 1
    worker.resume()
    until(lambda: worker.server.load().num_sessions == 0)


def test_closed_sessions_go_with_the_next_call(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    client.draft([want("a"), want("b")])
    client.close("a")
    one(client, want("b"))
    until(lambda: worker.server.load().num_sessions == 1)
    assert [batch.closed for batch in worker.batches].count((ClosedSession("a"),)) == 1


def test_in_process_drafters_need_no_worker() -> None:
    client = DrafterClient({"pld": DrafterConfig(placement="in_process")})
    result = one(client)
    assert (result.status, result.draft.token_ids) == ("ok", (3, 4))
    assert one(client, want(token_ids=[*TEXT, 3])).draft.token_ids == (4, 1)
    assert status(client)["up"] is True
    assert client.versions() == {"pld": PromptLookup().version}
    client.close("s")
    assert one(client, want(token_ids=[*TEXT, 3])).draft.token_ids == (4, 1)
    client.stop()
