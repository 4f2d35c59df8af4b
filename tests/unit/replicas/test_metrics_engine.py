"""What an engine's meter counted is what its replies say. Real forwards of a tiny model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.paged_model import PagedModel
from policy_service.api import RequestFeatures, SpeculationOptions
from policy_service.client import Planner
from policy_service.config import PolicyConfig
from replicas.api import GenerationRequest, GenerationResult, SamplingParams
from replicas.config import EngineConfig
from replicas.engine.core import EngineCore
from replicas.engine.step_time import StepTimeModel
from replicas.metrics.samples import Distribution, Sample
from tests.unit.models.tiny_models import VOCAB, save_model
from tests.unit.replicas.engine.scripted import (
    PINNED,
    REPLY_TO,
    ScriptedDrafters,
    random_request,
    run,
)

ENGINE = {"model_name": "m", "engine": "v1"}


@dataclass
class Bench:
    """An engine under a clock that only tests move."""

    core: EngineCore
    drafters: ScriptedDrafters
    now: float = 100.0

    def samples(self) -> list[Sample]:
        return self.core.meter.samples(ENGINE)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a series over all labels but these."""
        return sum(
            sample.value
            for sample in self.samples()
            if sample.name == name
            and labels.items() <= sample.labels.items()
            and not isinstance(sample.value, Distribution)
        )

    def times(self, name: str) -> tuple[int, float]:
        """Return how many values a histogram has and their sum."""
        [value] = [sample.value for sample in self.samples() if sample.name == name]
        assert isinstance(value, Distribution)
        return sum(value.counts), value.total


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_model("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture
def bench(folder: Path) -> Bench:
    model = PagedModel(folder, EngineConfig(cache_tokens=2000, page_tokens=4))
    planner = Planner(PolicyConfig(), {"scripted": "1"}, np.random.default_rng(0))
    drafters = ScriptedDrafters({}, random.Random(3))
    core = EngineCore(
        model,
        planner,
        drafters,  # type: ignore[arg-type]  # it has the part of DrafterClient that is used
        None,
        StepTimeModel({1: 1.0}),
        max_sequences=8,
        max_step_tokens=24,
        clock=lambda: made.now,
    )
    core.meter._wall_clock = lambda: made.now + 1_000_000.0
    made = Bench(core, drafters)
    return made


def request(name: str, max_tokens: int = 8, **fields: object) -> GenerationRequest:
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    base = GenerationRequest(name, (5, 6, 7, 8, 9), sampling, seed=1, reply_to=REPLY_TO)
    return replace(base, **fields)  # type: ignore[arg-type]  # fields of a request


def random_mix(bench: Bench) -> tuple[list[GenerationRequest], dict[str, GenerationResult]]:
    """Run a mix of requests, once to learn the replies and once drafting from them."""
    rng = random.Random(5)
    prefix = [rng.randrange(3, VOCAB) for _ in range(20)]
    requests = [random_request(rng, index, prefix) for index in range(24)]
    plain = [replace(one, speculation=SpeculationOptions(mode="off")) for one in requests]
    learnt, _ = run(bench.core, plain)
    bench.drafters.replies = {name: list(one.token_ids) for name, one in learnt.items()}
    return requests, learnt


def test_sums_are_those_of_the_replies(bench: Bench) -> None:
    requests, learnt = random_mix(bench)
    results, _ = run(bench.core, requests)
    replies = [*learnt.values(), *results.values()]
    prompts = [len(one.prompt_token_ids) for one in requests] * 2

    assert bench.total("vllm:prompt_tokens_total") == sum(prompts)
    assert bench.total("vllm:generation_tokens_total") == sum(len(r.token_ids) for r in replies)
    assert bench.times("vllm:request_prompt_tokens") == (len(replies), sum(prompts))
    assert bench.times("vllm:e2e_request_latency_seconds")[0] == len(replies)
    for reason in ("stop", "length", "abort", "error"):
        expected = sum(reply.finish_reason == reason for reply in replies)
        assert bench.total("vllm:request_success_total", finished_reason=reason) == expected
    assert bench.total("vllm:prefix_cache_hits_total") == sum(
        reply.stats.num_cached_tokens for reply in replies
    )
    assert bench.total("vllm:prefix_cache_queries_total") == sum(prompts)
    computed = bench.core.counters.prompt_tokens
    assert bench.times("vllm:iteration_tokens_total")[1] == computed + sum(
        len(reply.token_ids) for reply in replies
    )


def test_speculation_counts_agree_with_replies_and_with_vllms_names(bench: Bench) -> None:
    requests, _ = random_mix(bench)
    results, _ = run(bench.core, requests)
    stats = [result.stats for result in results.values()]
    accepted = sum(one.num_accepted_tokens for one in stats)
    positions = [
        sum(sum(one.acceptance_histogram[position + 1 :]) for one in stats) for position in range(6)
    ]
    assert accepted > 20
    for prefix in ("vllm:spec_decode_num_", "specdec_"):
        assert bench.total(f"{prefix}drafts_total") == sum(
            sum(one.acceptance_histogram) for one in stats
        )
        assert bench.total(f"{prefix}draft_tokens_total") == sum(
            one.num_draft_tokens for one in stats
        )
        assert bench.total(f"{prefix}accepted_tokens_total") == accepted
        name = f"{prefix}accepted_tokens_per_pos_total"
        assert [bench.total(name, position=str(at)) for at in range(6)] == positions
    rounds = bench.total("specdec_rounds_total")
    assert rounds == bench.total("specdec_rounds_total", drafter="none", gamma="0") + bench.total(
        "specdec_rounds_total", drafter="scripted", gamma="6", learner="fixed"
    )
    assert bench.total("specdec_drafts_total", gamma="0") == 0
    # Every token but those that prefills gave comes from a round.
    assert bench.total("specdec_emitted_tokens_total") <= bench.total(
        "vllm:generation_tokens_total"
    )
    without = bench.total("specdec_fallbacks_total", reason="empty")
    assert 0 < without == bench.total("specdec_fallbacks_total")


def test_a_requests_times_start_at_the_ingress_and_lie_one_after_the_other(bench: Bench) -> None:
    core = bench.core
    arrived = bench.now + 1_000_000.0
    bench.now += 0.5  # on its way
    core.add(request("a", 3, arrived_at=arrived), bench.now)
    bench.now += 1.0  # in the queue
    for _ in range(3):
        finish_step(bench, 2.0)
    assert bench.times("vllm:request_queue_time_seconds") == (1, 1.0)
    assert bench.times("vllm:request_prefill_time_seconds") == (1, 2.0)
    assert bench.times("vllm:time_to_first_token_seconds") == (1, 3.5)
    assert bench.times("vllm:inter_token_latency_seconds") == (2, 4.0)
    assert bench.times("vllm:request_decode_time_seconds") == (1, 4.0)
    assert bench.times("vllm:request_time_per_output_token_seconds") == (1, 2.0)
    assert bench.times("vllm:request_inference_time_seconds") == (1, 6.0)
    assert bench.times("vllm:e2e_request_latency_seconds") == (1, 7.5)
    assert bench.times("vllm:request_params_max_tokens") == (1, 3.0)


def finish_step(bench: Bench, seconds: float) -> None:
    """Run a step that takes so long: the clock is moved while its tokens are computed."""
    forward = bench.core._model.forward

    def slow(batch: object) -> torch.Tensor:
        bench.now += seconds
        return forward(batch)  # type: ignore[arg-type]  # handed through

    bench.core._model.forward = slow  # type: ignore[method-assign]  # put back below
    try:
        bench.core.finish(bench.core.step())
    finally:
        bench.core._model.forward = forward  # type: ignore[method-assign]  # as it was


def test_a_clock_that_is_behind_the_ingress_makes_no_time_negative(bench: Bench) -> None:
    future = bench.now + 1_000_000.0 + 50.0
    bench.core.add(request("a", 2, arrived_at=future), bench.now)
    finish_step(bench, 2.0)
    assert bench.times("vllm:time_to_first_token_seconds") == (1, 2.0)


def test_a_resumed_reply_has_no_first_token_here_and_no_token_twice(bench: Bench) -> None:
    plain = request("a", 8, speculation=SpeculationOptions(mode="off"), reply_to=None)
    whole = run(bench.core, [plain])[0]["a"]
    emitted = bench.total("vllm:generation_tokens_total")
    run(bench.core, [replace(plain, request_id="b", resume_token_ids=whole.token_ids[:5])])
    assert bench.total("vllm:generation_tokens_total") == emitted + 3
    assert bench.times("vllm:time_to_first_token_seconds")[0] == 1
    assert bench.times("vllm:request_generation_tokens") == (2, 16.0)


def test_cancelled_requests_are_aborted_and_no_more(bench: Bench) -> None:
    bench.core.add(request("a"), 0.0)
    bench.core.finish(bench.core.step())
    bench.core.cancel({"a", "unknown"})
    assert bench.total("vllm:request_success_total", finished_reason="abort") == 1
    assert bench.total("vllm:request_success_total") == 1
    assert bench.times("vllm:e2e_request_latency_seconds")[0] == 0


def test_contexts_are_coarse_whatever_tenants_and_prompts_there_are(bench: Bench) -> None:
    features = [
        RequestFeatures(tenant=f"t{n}", system_prompt_hash=f"s{n}", route=route, temperature=n / 9)
        for n in range(9)
        for route in ("chat", "completions")
    ]
    requests = [
        request(f"r{n}", 3, features=one, speculation=SpeculationOptions(mode="off"))
        for n, one in enumerate(features)
    ]
    run(bench.core, requests)
    contexts = {
        sample.labels["context"]
        for sample in bench.samples()
        if sample.name == "specdec_rounds_total"
    }
    assert contexts == {"r=chat|c=0", "r=completions|c=0"}


def test_waits_count_once_a_step_and_drafter_however_many_sequences(bench: Bench) -> None:
    requests = [request(f"r{n}", 12, speculation=PINNED) for n in range(4)]
    bench.drafters.replies = {one.request_id: [4] * 12 for one in requests}
    run(bench.core, requests)
    [waits] = distributions(bench.samples(), "specdec_draft_wait_seconds")
    num_steps, _ = bench.times("banditserve_step_seconds")
    assert 0 < sum(waits.counts) <= num_steps
    assert waits.total == pytest.approx(1e-4 * sum(waits.counts))


def distributions(samples: Sequence[Sample], name: str) -> list[Distribution]:
    return [
        sample.value
        for sample in samples
        if sample.name == name and isinstance(sample.value, Distribution)
    ]
