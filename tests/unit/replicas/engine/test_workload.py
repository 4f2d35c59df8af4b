"""What an engine reports of its work and pace, from a real engine under way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from models.paged_model import PagedModel
from policy_service.api import SpeculationOptions
from replicas.api import GenerationRequest, SamplingParams
from replicas.autoscaling import (
    BLOCKED_TOKENS,
    GOODPUT,
    PROMPT_RATE,
    QUEUED_TOKENS,
    REPLY_TOKENS,
    WorkPolicy,
)
from replicas.config import EngineConfig
from replicas.engine.core import EngineCore
from replicas.engine.step_time import StepTimeModel
from replicas.engine.workload import Pace, WorkMeter
from tests.unit.models.tiny_models import save_model
from tests.unit.replicas.engine.scripted import ScriptedDrafters, scripted_core

STEP_TIME = StepTimeModel({1: 10.0, 64: 80.0})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model("llama", tmp_path_factory.mktemp("llama"))


def engine(folder: Path, max_sequences: int) -> EngineCore:
    model = PagedModel(folder, EngineConfig(cache_tokens=2000, page_tokens=4))
    drafters = ScriptedDrafters({}, random.Random(0))
    return scripted_core(model, drafters, max_sequences=max_sequences, step_tokens=16)


def request(name: str, num_prompt: int, max_tokens: int) -> GenerationRequest:
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    prompt = tuple(3 + (ord(name) + i) % 50 for i in range(num_prompt))
    off = SpeculationOptions(mode="off")
    return GenerationRequest(name, prompt, sampling, seed=0, speculation=off)


def step(core: EngineCore) -> dict[str, float]:
    core.finish(core.step())
    return core.work


def test_work_is_what_is_left(folder: Path) -> None:
    core = engine(folder, max_sequences=2)
    assert core.work[QUEUED_TOKENS] == core.work[REPLY_TOKENS] == core.work[BLOCKED_TOKENS] == 0
    core.add(request("a", 30, 5), 0.0)
    core.add(request("b", 6, 8), 0.0)
    core.add(request("c", 9, 7), 0.0)
    # 16 of the 30 tokens of a's prompt; c finds no place
    work = step(core)
    assert work[QUEUED_TOKENS] == 14 + 6 + 9
    assert work[BLOCKED_TOKENS] == 7
    assert work[REPLY_TOKENS] == 5 + 8 + 7
    work = step(core)
    assert work[QUEUED_TOKENS] == 4 + 9
    assert work[REPLY_TOKENS] == 4 + 8 + 7
    while core.has_work:
        work = step(core)
    assert work[QUEUED_TOKENS] == work[REPLY_TOKENS] == work[BLOCKED_TOKENS] == 0
    assert work[GOODPUT] > 0
    assert work[PROMPT_RATE] > 0


def test_a_cancelled_request_is_no_work(folder: Path) -> None:
    core = engine(folder, max_sequences=2)
    core.add(request("a", 30, 5), 0.0)
    step(core)
    core.cancel({"a"})
    assert core.work[QUEUED_TOKENS] == core.work[REPLY_TOKENS] == 0


def test_replies_are_expected_to_be_as_long_as_others_were(folder: Path) -> None:
    core = engine(folder, max_sequences=2)
    core.add(request("a", 4, 6), 0.0)
    while core.has_work:
        step(core)
    core.add(request("b", 4, 100), 0.0)
    assert step(core)[REPLY_TOKENS] == 6


def test_the_pace_is_known_from_the_warm_up_and_then_measured() -> None:
    meter = WorkMeter(STEP_TIME, max_step_tokens=64)
    first = meter.metrics((), ())
    assert first[PROMPT_RATE] == pytest.approx(800.0)
    assert first[GOODPUT] == pytest.approx(100.0)
    for _ in range(3000):
        meter.observe_step(0.1, 0, 4)
    later = meter.metrics((), ())
    assert later[GOODPUT] == pytest.approx(40.0, rel=0.01)
    assert later[PROMPT_RATE] == first[PROMPT_RATE]
    for _ in range(3000):
        meter.observe_step(0.2, 64, 1)
    assert meter.metrics((), ())[PROMPT_RATE] == pytest.approx(320.0, rel=0.01)


@pytest.mark.parametrize("seconds", [0.001, 0.1, 10.0, 1000.0])
def test_a_pace_forgets_by_time_worked_not_by_steps(seconds: float) -> None:
    pace = Pace(1000.0)
    for _ in range(max(1, round(100 / seconds))):
        pace.observe(round(20 * seconds), seconds)
    assert pace.rate == pytest.approx(20.0, rel=2.0 if seconds < 0.1 else 0.5, abs=40)


def test_fewer_accepted_drafts_ask_for_more_verifiers() -> None:
    """Eight replies of 300 tokens, steps of 100 ms: 3.2 tokens a round are enough, 1 is not."""
    policy = WorkPolicy(ttft_target_s=2.0, reply_target_s=15.0, tolerance=0.1)
    works = []
    for tokens_a_round in (3.2, 1.0):
        meter = WorkMeter(STEP_TIME, max_step_tokens=64)
        for _ in range(3000):
            meter.observe_step(0.1, 0, round(8 * tokens_a_round))
        works.append(policy.work({**meter.metrics((), ()), REPLY_TOKENS: 8 * 300.0}))
    assert works[0] < 1 < 1.8 < works[1]
