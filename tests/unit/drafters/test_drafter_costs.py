"""What drafts cost and what became of them, as the callers see it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drafters.api import (
    ClosedSession,
    Draft,
    DraftBatch,
    DraftBatchReply,
    DraftRequest,
    NoiseKey,
    SessionContext,
    chain,
)
from drafters.calls import Call
from drafters.client import DrafterClient, DraftWanted
from drafters.config import DrafterConfig
from drafters.histogram import BOUNDS_MS, Histogram
from drafters.methods.prompt_lookup import PromptLookup
from drafters.sessions import DraftServer
from drafters.tally import MAX_DEPTH, DrafterTally, depths
from tests.unit.drafters.workers import PostTransport, Worker, until

TEXT = [1, 2, 3, 4, 1, 2]
NOISE = NoiseKey(0, 0, 0.0)
CONFIG = DrafterConfig(min_deadline_ms=250.0)


@pytest.fixture
def client() -> Iterator[DrafterClient]:
    drafters = DrafterClient({"pld": CONFIG}, transports={"worker": PostTransport()})
    yield drafters
    drafters.stop()


def test_tokens_are_counted_by_depth(client: DrafterClient) -> None:
    client.set_members([Worker().member()])
    draft = client.draft([DraftWanted("s", "pld", 4, TEXT, 3, NOISE)])[0].draft
    client.observe("pld", draft.prefix(3), (0, 1))
    client.observe("pld", draft.prefix(0), ())
    client.observe("nobody", draft, ())
    cost = client.status()[0]["cost"]
    assert cost["drafted_by_depth"] == [1, 1, 1, 1]
    assert cost["verified_by_depth"] == [1, 1, 1, 0]
    assert cost["accepted_by_depth"] == [1, 1, 0, 0]
    assert (cost["calls"], cost["contexts"], cost["sent_tokens"]) == (1, 1, 6)
    client.draft([DraftWanted("s", "pld", 4, [*TEXT, 3], 3, NOISE)])
    cost = client.status()[0]["cost"]
    assert (cost["calls"], cost["contexts"], cost["sent_tokens"]) == (2, 1, 7)
    json.dumps(client.status())


def test_a_round_trip_is_shared_out_among_its_parts() -> None:
    tally = DrafterTally()
    context = SessionContext(tuple(TEXT), 3, NOISE)
    batch = DraftBatch((DraftRequest("a", 0, (), 2, context), DraftRequest("b", 5, (1, 2), 2)))
    call = Call(Worker().member(), batch, 1.0)
    tally.count_call(call, DraftBatchReply("1", (), draft_ms=3.0, queue_ms=1.5), 9.0)
    cost = tally.cost()
    assert cost["draft_ms"]["sum_ms"] == 3.0
    assert cost["queue_ms"]["sum_ms"] == 1.5
    assert cost["transport_ms"]["sum_ms"] == 4.5
    assert cost["round_trip_ms"]["sum_ms"] == 9.0
    assert (cost["contexts"], cost["sent_tokens"]) == (1, 8)


def test_depths_of_trees_and_of_very_long_chains() -> None:
    assert depths(Draft((1, 2, 3, 4), (-1, -1, 1, 2))) == [0, 0, 1, 2]
    assert depths(chain(range(MAX_DEPTH + 9)))[-1] == MAX_DEPTH - 1
    tally = DrafterTally()
    tally.count_verified(Draft((1, 2, 3), (-1, -1, 1)), (1, 2))
    assert (tally.verified[:2], tally.accepted[:2]) == ([2, 1], [1, 1])


@given(st.lists(st.floats(0.0, 9_999.0), min_size=1, max_size=60), st.floats(0.01, 1.0))
@example([1.0, 3.0], 1.0)
@example([1.0, 3.0], 0.5)
def test_quantiles_are_right_to_the_bucket(times: list[float], share: float) -> None:
    histogram = Histogram()
    for ms in times:
        histogram.add(ms)
    rank = max(0, -(-len(times) * share // 1) - 1)
    exact = sorted(times)[int(rank)]
    upper = next(bound for bound in BOUNDS_MS if exact <= bound)
    lower = max((bound for bound in BOUNDS_MS if bound < exact), default=0.0)
    found = histogram.quantile(share)
    assert found is not None
    assert lower - 1e-9 <= found <= upper + 1e-9


def test_a_histogram_says_how_many_are_at_most_each_bound() -> None:
    histogram = Histogram()
    assert histogram.to_json()["p50_ms"] is None
    for ms in (0.05, 0.06, 1.0, 1e9):
        histogram.add(ms)
    said = histogram.to_json()
    assert said["count"] == 4
    assert list(said["at_most_ms"].items())[:5] == [
        ("0.05", 1),
        ("0.1", 2),
        ("0.2", 2),
        ("0.5", 2),
        ("1", 3),
    ]
    assert said["at_most_ms"]["10000"] == 3
    assert said["p95_ms"] == BOUNDS_MS[-1]


def test_workers_get_the_last_tokens_of_a_sequence(client: DrafterClient) -> None:
    """Those that came while other drafters were asked, or none."""
    worker = Worker()
    client.set_members([worker.member()])
    client.draft([DraftWanted("s", "pld", 2, TEXT, 3, NOISE)])
    client.draft([DraftWanted("t", "pld", 2, TEXT, 3, NOISE)])
    client.close("s", [*TEXT, 3, 4, 9])
    client.close("t")
    client.close("u", TEXT)
    told: list[ClosedSession] = []

    def is_told() -> bool:
        told[:] = [closed for batch in worker.batches for closed in batch.closed]
        return len(told) == 2

    until(is_told)
    assert sorted(told, key=str) == [ClosedSession("s", 6, (3, 4, 9)), ClosedSession("t")]


def test_after_a_late_call_the_last_tokens_are_sent_from_where_it_is_known(
    client: DrafterClient,
) -> None:
    worker = Worker()
    client.set_members([worker.member()])
    client.draft([DraftWanted("s", "pld", 2, TEXT, 3, NOISE)])
    worker.paused = True
    client.draft([DraftWanted("s", "pld", 2, [*TEXT, 3], 3, NOISE)], worth_ms=1.0)
    client.close("s", [*TEXT, 3, 4, 9])
    worker.resume()
    until(lambda: any(batch.closed for batch in worker.batches))
    assert worker.batches[-1].closed == (ClosedSession("s", 6, (3, 4, 9)),)


def test_workers_are_told_of_the_last_ends_when_the_client_stops() -> None:
    client = DrafterClient({"pld": CONFIG}, transports={"worker": PostTransport()})
    worker = Worker()
    client.set_members([worker.member()])
    client.draft([DraftWanted("s", "pld", 2, TEXT, 3, NOISE)])
    client.close("s", [*TEXT, 3])
    client.stop()
    assert worker.server.load().num_sessions == 0
    assert client.num_open == 0


@pytest.mark.parametrize(
    ("closed", "tail"),
    [
        (ClosedSession("s", 6, (7, 8)), (7, 8)),
        (ClosedSession("s", 4, (1, 2, 7, 8)), (7, 8)),
        (ClosedSession("s", 4, (1, 2)), None),
        (ClosedSession("s", 7, (8, 9)), None),
        (ClosedSession("s"), None),
    ],
)
def test_a_drafter_gets_of_the_last_tokens_those_that_it_has_not(
    closed: ClosedSession, tail: tuple[int, ...] | None
) -> None:
    extended: list[Sequence[int]] = []

    class Recording(PromptLookup):
        def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
            extended.append(token_ids)

    server = DraftServer(Recording(), "1", time.perf_counter)
    context = SessionContext(tuple(TEXT), 3, NOISE)
    server.answer(DraftBatch((DraftRequest("s", 0, (), 2, context),), (closed,)))
    server.answer(DraftBatch((), (closed,)))
    while server.tidy() is not None:
        pass
    assert extended == ([] if tail is None else [tail])
