"""The engine against a plain loop, over random mixes of requests and drafts. Real forwards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from drafters.client import DraftResult, DraftWanted
from models.config import PagedModelConfig
from models.paged_model import PagedModel
from policy_service.api import SpeculationOptions
from policy_service.client import Planner
from policy_service.config import PolicyConfig
from policy_service.step_times import StepTimes
from replicas.api import GenerationRequest, SamplingParams
from replicas.config import EngineConfig
from replicas.engine.core import EngineCore
from tests.unit.models.tiny_models import FAMILIES, LEAN_FAMILIES, VOCAB, save_model
from tests.unit.replicas.engine.scripted import (
    PINNED,
    REPLY_TO,
    ScriptedDrafters,
    plain_reply,
    random_request,
    run,
    scripted_core,
)


@dataclass
class Bench:
    """A model on disk, its plain twin and engines over it."""

    family: str
    folder: Path
    plain: Any

    def engine(
        self, drafters: ScriptedDrafters, *, cache_tokens: int = 2000, step_tokens: int = 24
    ) -> EngineCore:
        config = EngineConfig(cache_tokens=cache_tokens, page_tokens=4)
        model = PagedModel(self.folder, config)
        assert model.is_lean == (self.family in LEAN_FAMILIES)
        return scripted_core(model, drafters, step_tokens=step_tokens)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    torch.set_num_threads(1)
    folder = save_model(request.param, tmp_path_factory.mktemp(request.param))
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return Bench(request.param, folder, plain)


@pytest.mark.parametrize("cache_tokens", [2000, 76])
def test_any_mix_gives_the_tokens_of_a_plain_loop(bench: Bench, cache_tokens: int) -> None:
    rng = random.Random(cache_tokens)
    prefix = [rng.randrange(3, VOCAB) for _ in range(20)]
    requests = [random_request(rng, index, prefix) for index in range(24)]
    expected = {one.request_id: plain_reply(bench.plain, one) for one in requests}
    drafters = ScriptedDrafters(expected, rng)
    core = bench.engine(drafters, cache_tokens=cache_tokens)

    results, streamed = run(core, requests)

    assert {name: list(result.token_ids) for name, result in results.items()} == expected
    assert streamed == expected
    assert core.cache_usage == 0
    assert drafters.num_open == set()
    assert core.counters.accepted_tokens > 40
    if cache_tokens < 100:
        assert core.num_preemptions > 0


def test_a_cancelled_request_leaves_nothing_and_disturbs_nobody(bench: Bench) -> None:
    rng = random.Random(1)
    requests = [random_request(rng, index, [3, 4, 5]) for index in range(8)]
    expected = {one.request_id: plain_reply(bench.plain, one) for one in requests}
    drafters = ScriptedDrafters(expected, rng)
    core = bench.engine(drafters)

    def cancel(step: int) -> None:
        if step == 2:
            core.cancel({"r0", "r3", "unknown"})

    results, _ = run(core, requests, cancel)
    for name, result in results.items():
        assert list(result.token_ids) == expected[name]
    assert set(results) >= set(expected) - {"r0", "r3"}
    assert core.cache_usage == 0
    assert drafters.num_open == set()


def test_a_resumed_reply_goes_on_as_if_nothing_had_happened(bench: Bench) -> None:
    rng = random.Random(2)
    requests = [random_request(rng, index, [3, 4, 5]) for index in range(12)]
    expected = {one.request_id: plain_reply(bench.plain, one) for one in requests}
    resumed = [
        GenerationRequest(
            request_id=one.request_id,
            prompt_token_ids=one.prompt_token_ids,
            sampling=one.sampling,
            seed=one.seed,
            choice_index=one.choice_index,
            resume_token_ids=tuple(reply[: rng.randrange(len(reply))]),
            speculation=one.speculation,
        )
        for one in requests
        for reply in [expected[one.request_id]]
    ]
    core = bench.engine(ScriptedDrafters(expected, rng))
    results, _ = run(core, resumed)
    assert {name: list(result.token_ids) for name, result in results.items()} == expected


def test_a_decode_waits_for_no_more_than_a_budget_of_prefill(bench: Bench) -> None:
    short = GenerationRequest(
        "short", (5, 6), SamplingParams(30, temperature=0.0, ignore_eos=True), 0, reply_to=REPLY_TO
    )
    long = GenerationRequest("long", tuple([7] * 100), SamplingParams(2, temperature=0.0), 0)
    core = bench.engine(ScriptedDrafters({"short": [], "long": []}, random.Random(0)))
    core.add(short, 0.0)
    core.finish(core.step())
    core.add(long, 0.0)
    for _ in range(4):
        before = core.counters.prompt_tokens
        output = core.step()
        core.finish(output)
        assert [chunk.request_id for _, chunk in output.chunks] == ["short"]
        assert 0 < core.counters.prompt_tokens - before < 24


def test_the_policy_is_told_how_long_steps_take(bench: Bench) -> None:
    class Listener(Planner):
        heard: StepTimes | None = None

        def set_step_times(self, step_times: StepTimes) -> None:
            self.heard = step_times
            super().set_step_times(step_times)

    core = bench.engine(ScriptedDrafters({}, random.Random(0)))
    planner = Listener(PolicyConfig(), {}, np.random.default_rng(0))
    core._planner = planner
    off = SpeculationOptions(mode="off")
    sampling = SamplingParams(5, temperature=0.0)
    run(core, [GenerationRequest("one", (5, 6), sampling, 0, speculation=off)])
    assert planner.heard is not None
    assert planner.heard.rows == (1,)
    assert planner.heard.ms[0] != 1.0  # what it was told at first, corrected by real steps


def test_a_repeated_prompt_is_not_computed_again(bench: Bench) -> None:
    prompt = tuple(range(3, 43))
    core = bench.engine(ScriptedDrafters({}, random.Random(0)))
    off = SpeculationOptions(mode="off")
    results = []
    for name in ("first", "second"):
        request = GenerationRequest(
            name, prompt, SamplingParams(5, temperature=0.0), 0, speculation=off
        )
        results.append(run(core, [request])[0][name])
    assert results[0].token_ids == results[1].token_ids
    assert results[0].stats.num_cached_tokens == 0
    assert results[1].stats.num_cached_tokens == 36
    assert core.counters.prompt_tokens == 40 + 4


@dataclass
class FeatureDrafters(ScriptedDrafters):
    """Asks for the hidden states of all that is cached, as a feature-level drafter would."""

    states: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def draft(
        self, wanted: Sequence[DraftWanted], worth_ms: float | None = None
    ) -> list[DraftResult]:
        for one in wanted:
            assert one.hidden_states is not None
            self.states[one.session_id] = one.hidden_states(0, len(one.token_ids) - 1)
        return super().draft(wanted, worth_ms)


def test_hidden_states_of_committed_tokens_are_handed_out(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    rng = random.Random(3)
    folder = save_model("llama", tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    requests = [
        replace(random_request(rng, index, [3, 4, 5, 6] * 4), speculation=PINNED)
        for index in range(8)
    ]
    expected = {one.request_id: plain_reply(plain, one) for one in requests}
    drafters = FeatureDrafters(expected, rng)
    config = PagedModelConfig(cache_tokens=2000, page_tokens=4, keep_hidden_states=True)
    model = PagedModel(folder, config)
    core = scripted_core(model, drafters, step_tokens=24)
    run(core, requests)
    assert len(drafters.states) > 4
    for request in requests:
        if (states := drafters.states.get(request.request_id)) is not None:
            tokens = [*request.prompt_token_ids, *expected[request.request_id]][: len(states)]
            with torch.inference_mode():
                hidden = plain.base_model(torch.tensor([tokens])).last_hidden_state[0]
            assert np.allclose(states, hidden.numpy(), atol=1e-4)
