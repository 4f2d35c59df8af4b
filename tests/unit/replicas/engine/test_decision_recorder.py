"""Rounds on their way from the engine to memory, to a log, and to whoever judges by it."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
import torch

from models.paged_model import PagedModel
from policy_service.api import NONE, RequestFeatures, SpeculationOptions
from policy_service.config import DecisionLogConfig, PolicyConfig
from policy_service.decision_log.reader import read_log
from policy_service.decision_log.records import LogHeader
from policy_service.loading import load_learner
from policy_service.off_policy.doubts import usable
from policy_service.off_policy.evaluation import ReplayOptions, evaluate
from replicas.api import GenerationRequest, GenerationResult
from replicas.config import EngineConfig
from replicas.decision_recorder import DecisionRecorder
from replicas.request_ids import reply_id
from replicas.round_reports import explained_replies
from tests.unit.models.tiny_models import VOCAB, save_model
from tests.unit.replicas.engine.scripted import ScriptedDrafters, random_request, run, scripted_core

HEADER = LogHeader("tiny", "v1", "0f3a5577", "uniform", "time", 1.0, 0.0)
NUM_REQUESTS = 24


@dataclass
class Served:
    """A model, and what it replies to some requests."""

    model: PagedModel
    requests: list[GenerationRequest]
    replies: dict[str, list[int]]

    def by(self, recorder: DecisionRecorder, learner: str) -> dict[str, GenerationResult]:
        """Serve the requests, their rounds chosen by a learner; return the results."""
        core = scripted_core(
            self.model,
            ScriptedDrafters(self.replies, random.Random(1)),
            policy=PolicyConfig(learner=learner, gammas=(2, 4)),
            on_rounds=recorder.record,
        )
        results, _ = run(core, self.requests)
        recorder.close(20.0)
        return results


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    torch.set_num_threads(1)
    folder = save_model("llama", tmp_path_factory.mktemp("llama"))
    model = PagedModel(folder, EngineConfig(cache_tokens=2000, page_tokens=4))
    requests = made_requests()
    core = scripted_core(model, ScriptedDrafters({}, random.Random(0)))
    off = SpeculationOptions(mode="off")
    plain, _ = run(core, [replace(one, speculation=off) for one in requests])
    replies = {name: list(result.token_ids) for name, result in plain.items()}
    return Served(model, requests, replies)


def made_requests() -> list[GenerationRequest]:
    rng = random.Random(5)
    prefix = [rng.randrange(3, VOCAB) for _ in range(20)]
    return [
        replace(
            random_request(rng, index, prefix),
            request_id=reply_id(f"http-{index // 2}", index % 2),
            speculation=SpeculationOptions(explain=True, mode="off" if index == 1 else "auto"),
            features=RequestFeatures(tenant=f"t{index // 2 % 3}"),
        )
        for index in range(NUM_REQUESTS)
    ]


@pytest.mark.parametrize("learner", ["uniform", "ucbspec", "goodput"])
def test_every_round_is_in_memory_and_in_the_log(
    served: Served, tmp_path: Path, learner: str
) -> None:
    recorder = DecisionRecorder(DecisionLogConfig(folder=tmp_path, share=1.0), HEADER)
    results = served.by(recorder, learner)
    log = read_log([tmp_path])
    num_rounds = sum(len(result.rounds) for result in results.values())
    assert recorder.status()["log"]["written"] == num_rounds > 100
    assert recorder.status()["recent_rounds"] == num_rounds
    assert log.notes == []
    logged = {}
    for reply in log.replies:
        [entry] = explained_replies(reply.rounds, "v1")
        first = reply.rounds[0]
        logged[f"{first.request_id}-{first.sequence}-{first.choice}"] = entry["rounds"]
        assert all(one.decision.arm in one.allowed for one in reply.rounds)
        assert [one.index for one in reply.rounds] == list(range(len(reply.rounds)))
    shown = {
        name: [asdict(report) for report in result.rounds]
        for name, result in results.items()
        if result.rounds
    }
    assert without_estimates(logged) == without_estimates(shown)
    for name, result in results.items():
        for before, after in zip(result.rounds, result.rounds[1:], strict=False):
            assert after.position == before.position + before.num_emitted
        if result.rounds:
            last = result.rounds[-1]
            assert last.position + last.num_emitted == len(result.token_ids), name


def without_estimates(replies: dict[str, list[dict[str, object]]]) -> object:
    """A log rounds estimates; all else is in it as it was."""
    return {
        name: [{**one, "estimates": sorted(one["estimates"])} for one in rounds]  # type: ignore[call-overload]  # values of a report, of which this is a mapping
        for name, rounds in replies.items()
    }


def test_the_log_of_an_engine_can_judge_a_learner(served: Served, tmp_path: Path) -> None:
    recorder = DecisionRecorder(DecisionLogConfig(folder=tmp_path, share=1.0), HEADER)
    served.by(recorder, "uniform")
    replies, notes = usable(read_log([tmp_path]).replies)
    assert notes == ["1 replies that had no choice left out"]
    judged = load_learner("fixed", {"arm": "none"})
    evaluation = evaluate(replies, judged, ReplayOptions(reward="time", num_resamples=100))
    assert evaluation.support.told_share == 1.0  # plain decoding is told by all
    for estimate in evaluation.estimates.values():
        assert estimate.tokens_per_round.value == pytest.approx(1.0)
    assert evaluation.log.tokens_per_round.value > 1.1


def test_a_share_of_requests_is_logged_whole(served: Served, tmp_path: Path) -> None:
    recorder = DecisionRecorder(DecisionLogConfig(folder=tmp_path, share=0.4), HEADER)
    results = served.by(recorder, "uniform")
    logged: dict[str, int] = {}
    for reply in read_log([tmp_path]).replies:
        name = reply.rounds[0].request_id
        logged[name] = logged.get(name, 0) + len(reply.rounds)
    assert 0 < len(logged) < NUM_REQUESTS // 2
    for name, count in logged.items():
        mine = [one for id_, one in results.items() if id_.startswith(f"{name}-")]
        assert count == sum(len(one.rounds) for one in mine)


def test_only_whose_request_it_was_is_told(served: Served) -> None:
    recorder = DecisionRecorder(DecisionLogConfig(), HEADER)
    served.by(recorder, "uniform")
    assert recorder.status()["log"] is None
    for tenant, is_told in (("t1", True), ("", True), ("t0", False)):
        answer = recorder.explain("http-1", tenant)
        assert bool(answer["replies"]) is is_told
    [first, second] = recorder.explain("http-1", "t1")["replies"]
    assert (first["index"], second["index"]) == (0, 1)
    off = recorder.explain("http-0", "t0")["replies"][1]
    assert {one["reason"] for one in off["rounds"]} == {"off"}
    assert {one["arm"] for one in off["rounds"]} == {str(NONE)}
