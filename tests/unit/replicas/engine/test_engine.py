"""The engine against a plain loop, over random mixes of requests and drafts. Real forwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from drafters.api import EMPTY_DRAFT, ROOT, Draft, chain
from drafters.client import DraftResult, DraftWanted
from models.paged_model import PagedModel
from policy_service.api import SpeculationOptions
from policy_service.client import Planner
from policy_service.config import PolicyConfig
from replicas.api import GenerationRequest, GenerationResult, ReplyTo, SamplingParams
from replicas.config import EngineConfig
from replicas.engine.core import EngineCore
from replicas.engine.sampler import Sampler
from replicas.engine.step_time import StepTimeModel
from tests.unit.models.tiny_models import FAMILIES, LEAN_FAMILIES, VOCAB, save_model

EOS = 2
REPLY_TO = ReplyTo("127.0.0.1", 1, "secret")
PINNED = SpeculationOptions(drafter="scripted", gamma=6)


@dataclass
class ScriptedDrafters:
    """Drafts right, wrong and branching continuations of replies that it is told."""

    replies: dict[str, list[int]]
    rng: random.Random
    num_open: set[str] = field(default_factory=set)

    def draft(self, wanted: Sequence[DraftWanted]) -> list[DraftResult]:
        results = []
        for one in wanted:
            self.num_open.add(one.session_id)
            rest = self.replies[one.session_id][len(one.token_ids) - one.prompt_length :]
            draft = self._draft(rest[: one.max_tokens], one.max_tokens)
            results.append(DraftResult(draft, "ok" if len(draft) else "empty", 0.1))
        return results

    def close(self, session_id: str) -> None:
        self.num_open.discard(session_id)

    def _draft(self, right: list[int], max_tokens: int) -> Draft:
        kind = self.rng.choice(["right", "wrong", "tree", "empty"])
        if kind == "empty":
            return EMPTY_DRAFT
        tokens = list(right)
        if kind == "wrong" and tokens:
            tokens[self.rng.randrange(len(tokens))] = self.rng.randrange(VOCAB)
        if kind != "tree" or len(tokens) < 2:
            return chain(tokens)
        # A wrong child before each right one, so that the accepted branch has holes.
        nodes: list[tuple[int, int]] = []
        parent = ROOT
        for token in tokens[: max_tokens // 2]:
            nodes.append((self.rng.randrange(VOCAB), parent))
            nodes.append((token, parent))
            parent = len(nodes) - 1
        return Draft(tuple(t for t, _ in nodes), tuple(p for _, p in nodes))


def plain_reply(model: Any, request: GenerationRequest) -> list[int]:
    """Generate with one full forward a token and nothing else of the engine but its sampler."""
    sampling = request.sampling
    ends = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else {EOS})
    sampler = Sampler(
        sampling,
        request.seed,
        request.choice_index,
        request.prompt_token_ids,
        ends,
        torch.arange(VOCAB),
    )
    tokens, reply = list(request.prompt_token_ids), list[int]()
    with torch.inference_mode():
        while len(reply) < sampling.max_tokens:
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
            token = sampler.token(logits, len(tokens))
            sampler.emit(token)
            tokens.append(token)
            reply.append(token)
            if token in ends:
                break
    return reply


def random_request(rng: random.Random, index: int, prefix: list[int]) -> GenerationRequest:
    prompt = prefix[: rng.randrange(len(prefix))] + [
        rng.randrange(3, VOCAB) for _ in range(rng.randrange(1, 30))
    ]
    sampling = SamplingParams(
        max_tokens=rng.randrange(1, 25),
        temperature=rng.choice([0.0, 0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 0, 5]),
        top_p=rng.choice([1.0, 0.8]),
        min_p=rng.choice([0.0, 0.05]),
        frequency_penalty=rng.choice([0.0, 0.6]),
        repetition_penalty=rng.choice([1.0, 1.2]),
        logit_bias=rng.choice([{}, {5: 2.0}]),
        stop_token_ids=rng.choice([(), (11, 12)]),
        ignore_eos=rng.random() < 0.5,
        min_tokens=0,
    )
    return GenerationRequest(
        request_id=f"r{index}",
        prompt_token_ids=tuple(prompt),
        sampling=sampling,
        seed=rng.randrange(2**63),
        choice_index=rng.randrange(3),
        speculation=rng.choice([PINNED, SpeculationOptions(mode="off"), PINNED]),
        reply_to=REPLY_TO,
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
        planner = Planner(PolicyConfig(), {"scripted": "1"}, np.random.default_rng(0))
        model = PagedModel(self.folder, config)
        assert model.is_lean == (self.family in LEAN_FAMILIES)
        return EngineCore(model, planner, drafters, None, StepTimeModel({1: 1.0}), 8, step_tokens)  # type: ignore[arg-type]  # ScriptedDrafters has the part of DrafterClient that is used


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    torch.set_num_threads(1)
    folder = save_model(request.param, tmp_path_factory.mktemp(request.param))
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return Bench(request.param, folder, plain)


def run(
    core: EngineCore,
    requests: Sequence[GenerationRequest],
    between: Callable[[int], None] = lambda step: None,
) -> tuple[dict[str, GenerationResult], dict[str, list[int]]]:
    results: dict[str, GenerationResult] = {}
    streamed: dict[str, list[int]] = {request.request_id: [] for request in requests}
    arriving = list(requests)
    step = 0
    while core.has_work or arriving:
        for request in arriving[:2]:
            core.add(request, 0.0)
        del arriving[:2]
        between(step)
        if core.has_work:
            output = core.step()
            core.finish(output)
            for _, chunk in output.chunks:
                assert chunk.start == len(streamed[chunk.request_id])
                streamed[chunk.request_id].extend(chunk.token_ids)
            results |= {result.request_id: result for result in output.finished}
        step += 1
    return results, streamed


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
