"""What is recorded is what drafters propose; replayed, a fixed arm does what the engine does."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle

import pytest
import torch

from cluster.errors import TraceError
from cluster.traces.format import Trace
from cluster.traces.generation import ReplyMaker
from cluster.traces.planning import PlannerPlayer
from cluster.traces.recording import Recorder, Reply
from cluster.traces.replay import DraftTable, Pick, Replay, Running
from drafters.api import DrafterInfo, NoiseKey, SessionContext
from drafters.client import DrafterClient, Member
from drafters.config import DrafterConfig
from drafters.draft_queue import DraftQueue
from drafters.loading import load_drafter
from drafters.sessions import DraftServer
from models.config import PagedModelConfig
from models.paged_model import PagedModel
from policy_service.api import Outcome, RequestFeatures, SpeculationOptions
from policy_service.config import PolicyConfig
from replicas.api import SamplingParams
from replicas.engine.step_time import StepTimeModel
from tests.unit.cluster.random_traces import METHODS, TIMES, recorder, repetitive, reply_of
from tests.unit.models.tiny_models import VOCAB, save_model

Round = tuple[int, int, int, int]
"""Drafted, verified, accepted and emitted tokens."""
MAX_TOKENS = 40
WAIT_S = 10.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PagedModel:
    torch.set_num_threads(1)
    folder = save_model("llama", tmp_path_factory.mktemp("llama"))
    return PagedModel(folder, PagedModelConfig(cache_tokens=2000, page_tokens=4))


class Unhurried(StepTimeModel):
    """Takes steps for slow whatever they take, so that no draft is ever late."""

    def observe(self, rows: int, sequences: int, cached: int, forward_ms: float) -> None:
        pass


class OneDrafter:
    """An engine whose one drafter is known to have learnt from a reply before the next begins."""

    def __init__(self, model: PagedModel, name: str) -> None:
        patience_ms = 1e3 * WAIT_S
        config = DrafterConfig(
            method=name,
            params=METHODS[name],
            deadline_ms=patience_ms,
            min_deadline_ms=patience_ms,
        )
        drafter = load_drafter(config)
        self._server = DraftServer(drafter, "1", time.perf_counter)
        info = DrafterInfo(name, drafter.version, drafter.max_tokens, "1")
        queue = DraftQueue(self._server, time.perf_counter)
        self._queue = queue
        self._client = DrafterClient({name: config}, vocab_size=VOCAB)
        self._client.set_members([Member(name, name, info, queue, placement="in_process")])
        self.maker = ReplyMaker(model, Unhurried({1: patience_ms}), self._client)

    def settle(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while self._client.num_open or self._server.has_backlog:
            assert time.monotonic() < deadline
            time.sleep(1e-3)

    def close(self) -> None:
        self.maker.close()
        self._queue.stop()


def sampling(index: int) -> SamplingParams:
    return SamplingParams(MAX_TOKENS, temperature=(0.0, 0.3)[index % 2])


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    rng = random.Random(3)
    return [[3 + token for token in repetitive(rng, rng.randrange(8, 40))] for _ in range(12)]


@pytest.fixture(scope="module")
def trace(model: PagedModel, prompts: list[list[int]]) -> Trace:
    maker = ReplyMaker(model, StepTimeModel({1: 1.0}), DrafterClient({}))
    made = recorder(max_size=16)
    for index, prompt in enumerate(prompts):
        result = maker.generate(prompt, sampling(index), seed=index)
        made.record(reply_of(prompt, result.token_ids))
    maker.close()
    return made.trace(model="tiny", machine="", temperature=0.0, max_tokens=MAX_TOKENS, times=TIMES)


class Watched(PlannerPlayer):
    """Keeps what rounds gave, by request."""

    def __init__(self, trace: Trace, drafter: str, gamma: int) -> None:
        tables = {drafter: DraftTable(trace, drafter)}
        pinned = SpeculationOptions(drafter=drafter, gamma=gamma)
        super().__init__(trace, tables, PolicyConfig(), options=lambda request: pinned)
        self.tables = tables
        self.rounds: dict[str, list[Round]] = defaultdict(list)

    def learn(
        self, batch: Sequence[Running], picks: Sequence[Pick], outcomes: Sequence[Outcome]
    ) -> None:
        super().learn(batch, picks, outcomes)
        for sequence, one in zip(batch, outcomes, strict=True):
            self.rounds[sequence.name].append(
                (one.num_drafted, one.num_verified, one.num_accepted, one.num_emitted)
            )


@pytest.mark.parametrize("gamma", [1, 3, 8, 16])
@pytest.mark.parametrize("drafter", list(METHODS))
def test_a_replayed_arm_does_what_the_engine_does(
    drafter: str, gamma: int, model: PagedModel, prompts: list[list[int]], trace: Trace
) -> None:
    engine = OneDrafter(model, drafter)
    options = SpeculationOptions(drafter=drafter, gamma=gamma, explain=True)
    expected = {}
    for index, prompt in enumerate(prompts):
        result = engine.maker.generate(prompt, sampling(index), index, options)
        engine.settle()
        assert len(result.token_ids) == trace.requests[index].num_tokens
        expected[str(index)] = [
            (one.num_drafted, one.num_verified, one.num_accepted, one.num_emitted)
            for one in result.rounds
        ]
    engine.close()
    player = Watched(trace, drafter, gamma)
    replayable = [request for request in trace.requests if request.num_tokens > 1]
    assert len(replayable) == len(prompts)
    Replay(trace, player.tables, player, 1).run(cycle(replayable), len(replayable))
    assert dict(player.rounds) == expected
    accepted = [one[2] for rounds in expected.values() for one in rounds]
    assert sum(accepted) > 8


def test_a_draft_of_each_size_is_the_drafters_own() -> None:
    rng = random.Random(9)
    text = repetitive(rng, 60)
    made = recorder()
    made.record(reply_of(text[:10], text[10:40]))
    made.record(reply_of(text[40:50], text[5:30]))
    trace = made.trace(model="m", machine="", temperature=0.0, max_tokens=50, times=TIMES)
    drafter = load_drafter(DrafterConfig(method="suffix"))
    noise = NoiseKey(0, 0, 0.0)
    for request, prompt, reply in zip(
        trace.requests, (text[:10], text[40:50]), (text[10:40], text[5:30]), strict=True
    ):
        drafter.open(request.id, SessionContext((*prompt, reply[0]), 10, noise))
        for position in range(request.num_positions):
            for size in (1, 2, 5, 8):
                (draft,) = drafter.propose([(request.id, size)])
                at = request.first + position, size - 1
                drafts = trace.drafts["suffix"]
                assert drafts.lengths[at] == len(draft)
                assert drafts.scores[at] == draft.score
                assert tuple(drafts.parents[at][: len(draft)]) == draft.parents
            drafter.extend(request.id, [reply[position + 1]])
        drafter.close(request.id)


def test_a_drafter_that_needs_hidden_states_is_refused() -> None:
    class WithStates:
        needs_hidden_states = True

    with pytest.raises(TraceError, match="'eagle' cannot be recorded"):
        Recorder({"eagle": WithStates()}, 8, time.perf_counter)  # type: ignore[dict-item]  # refused before it is used


def test_a_reply_of_one_token_has_no_positions() -> None:
    made = recorder()
    for name, tokens in (("one", [5]), ("three", [5, 6, 7])):
        features = RequestFeatures()
        made.record(Reply(name, "w", "c", features, [1, 2], tokens, NoiseKey(0, 0, 0.0)))
    trace = made.trace(model="m", machine="", temperature=0.0, max_tokens=50, times=TIMES)
    assert [(one.first, one.num_positions) for one in trace.requests] == [(0, 0), (0, 2)]
