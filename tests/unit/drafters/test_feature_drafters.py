"""Drafters that need the target's hidden states get those of exactly the tokens that are sent."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from drafters.api import DraftBatch, DraftRequest, NoiseKey, SessionContext
from drafters.client import DrafterClient, DraftWanted
from drafters.config import DrafterConfig
from drafters.features import FeatureDrafter, HiddenStates, needs_hidden_states
from drafters.methods.prompt_lookup import PromptLookup
from drafters.sessions import DraftServer
from tests.unit.drafters.workers import PostTransport, Worker

TEXT = [1, 2, 3, 4, 1, 2]
NOISE = NoiseKey(0, 0, 0.0)
CONFIG = DrafterConfig(min_deadline_ms=250.0)


class Features(PromptLookup):
    """Looks things up, and keeps the states that it is given."""

    needs_hidden_states = True

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, list[float]] = {}

    def open(self, session_id: str, context: SessionContext) -> None:
        super().open(session_id, context)
        self.states[session_id] = []

    def add_hidden_states(self, session_id: str, states: HiddenStates) -> None:
        self.states[session_id].extend(float(row[0]) for row in states)


def states_of(start: int, stop: int) -> HiddenStates:
    """A token's state holds its position."""
    return np.arange(start, stop, dtype=np.float32)[:, None].repeat(3, axis=1)


def want(session_id: str, token_ids: list[int], with_states: bool = True) -> DraftWanted:
    states = states_of if with_states else None
    return DraftWanted(session_id, "pld", 2, token_ids, 3, NOISE, hidden_states=states)


@pytest.fixture
def client() -> Iterator[DrafterClient]:
    drafters = DrafterClient({"pld": CONFIG}, transports={"worker": PostTransport()})
    yield drafters
    drafters.stop()


def feature_worker() -> tuple[Worker, Features]:
    worker, drafter = Worker(), Features()
    worker.server = DraftServer(drafter, "start 1", time.perf_counter)
    return worker, drafter


def test_each_token_but_the_first_comes_with_the_state_before_it(client: DrafterClient) -> None:
    worker, drafter = feature_worker()
    client.set_members([worker.member()])
    token_ids = list(TEXT)
    for more in ([], [3], [4, 1, 2], [3]):
        token_ids += more
        assert client.draft([want("s", token_ids)])[0].status == "ok"
    assert drafter.states["s"] == [float(position) for position in range(len(token_ids) - 1)]
    assert drafter.position("s") == len(token_ids)
    assert sum(batch.requests[0].context is not None for batch in worker.batches) == 1


def test_a_drafter_that_lost_the_session_gets_all_states_again(client: DrafterClient) -> None:
    worker, drafter = feature_worker()
    client.set_members([worker.member()])
    client.draft([want("s", TEXT)])
    drafter.close("s")
    assert client.draft([want("s", [*TEXT, 3])])[0].status == "ok"
    assert drafter.states["s"] == [float(position) for position in range(6)]


def test_a_sequence_without_states_does_without(client: DrafterClient) -> None:
    worker, _ = feature_worker()
    client.set_members([worker.member()])
    results = client.draft([want("a", TEXT, with_states=False), want("b", TEXT)])
    assert [result.status for result in results] == ["need_context", "ok"]
    assert client.draft([want("c", TEXT, with_states=False)])[0].status == "need_context"
    assert [len(batch.requests) for batch in worker.batches] == [1]
    assert client.status()[0]["up"]


def test_states_are_only_read_for_drafters_that_need_them(client: DrafterClient) -> None:
    worker = Worker()
    client.set_members([worker.member()])

    def never(start: int, stop: int) -> HiddenStates:
        raise AssertionError(f"states {start} to {stop} were read")

    wanted = DraftWanted("s", "pld", 2, TEXT, 3, NOISE, hidden_states=never)
    assert client.draft([wanted])[0].status == "ok"


@pytest.mark.parametrize("states", [None, np.zeros((6, 3)), np.zeros(5)])
def test_states_of_another_number_of_tokens_are_refused(states: HiddenStates | None) -> None:
    server = DraftServer(Features(), "1", time.perf_counter)
    context = SessionContext(tuple(TEXT), 3, NOISE)
    request = DraftRequest("s", 0, (), 2, context, states)
    with pytest.raises(ValueError, match="expected hidden states of 5 tokens, found"):
        server.answer(DraftBatch((request,)))


def test_methods_say_whether_they_need_states() -> None:
    features: FeatureDrafter = Features()
    assert needs_hidden_states(features)
    assert not needs_hidden_states(PromptLookup())
