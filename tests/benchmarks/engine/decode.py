"""Plain decoding: the engine without speculation against transformers' ``generate``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from drafters.client import DrafterClient
from models.paged_model import PagedModel
from policy_service.api import SpeculationOptions
from policy_service.client import Planner
from policy_service.config import PolicyConfig
from replicas.api import GenerationRequest, SamplingParams
from replicas.engine.core import EngineCore
from replicas.engine.step_time import StepTimeModel, warm_up

OFF = SpeculationOptions(mode="off")
PROMPT_TOKENS = 64
"""All prompts are cut to this, so that transformers pads none."""


@dataclass
class EngineRun:
    """What one run of the engine took.

    Attributes:
        tokens_per_s: Tokens emitted a second.
        overhead_share: Share of the steps' time that was not the forward.
    """

    tokens_per_s: float
    overhead_share: float


def engine_core(model: PagedModel, step_time: StepTimeModel) -> EngineCore:
    """Return an engine with the defaults of a Verifier on CPU."""
    planner = Planner(PolicyConfig(), {}, np.random.default_rng(0))
    drafters = DrafterClient({}, vocab_size=model.vocab_size)
    return EngineCore(model, planner, drafters, None, step_time, 32, 128)


def run_engine(core: EngineCore, prompts: Sequence[Sequence[int]], max_tokens: int) -> EngineRun:
    """Decode all prompts side by side, greedy, and return what it took."""
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    counters = core.counters
    step_s, forward_s = counters.step_s, counters.forward_s
    started = time.perf_counter()
    for index, prompt in enumerate(prompts):
        request = GenerationRequest(f"r{index}", tuple(prompt), sampling, 0, speculation=OFF)
        core.add(request, time.monotonic())
    while core.has_work:
        core.finish(core.step())
    seconds = time.perf_counter() - started
    overhead = 1 - (counters.forward_s - forward_s) / (counters.step_s - step_s)
    return EngineRun(len(prompts) * max_tokens / seconds, overhead)


def run_generate(model: Any, prompts: Sequence[Sequence[int]], max_tokens: int) -> float:
    """Return the tokens a second of transformers' ``generate`` on the same prompts."""
    inputs = torch.tensor([list(prompt) for prompt in prompts])
    started = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            do_sample=False,
            min_new_tokens=max_tokens,
            max_new_tokens=max_tokens,
        )
    return len(prompts) * max_tokens / (time.perf_counter() - started)


def varied(prompt: Sequence[int], number: int) -> list[int]:
    """Return a prompt of ``PROMPT_TOKENS`` that the engine has no prefix of in its cache."""
    repeated = list(prompt) * (PROMPT_TOKENS // len(prompt) + 1)
    return [1000 + number, *repeated[: PROMPT_TOKENS - 1]]


def decode_figures(
    model: PagedModel, theirs: Any, prompts: Sequence[Sequence[int]], rounds: int, max_tokens: int
) -> dict[str, float]:
    """Alternate engine and ``generate`` at 1 and 16 sequences and return medians."""
    figures: dict[str, float] = {}
    core = engine_core(model, warm_up(model))
    for size in (1, 16):
        runs: list[EngineRun] = []
        rates: list[float] = []
        for number in range(rounds):
            chosen = [prompts[(number + index) % len(prompts)] for index in range(size)]
            asked = [varied(prompt, 100 * number + i) for i, prompt in enumerate(chosen)]
            runs.append(run_engine(core, asked, max_tokens))
            rates.append(run_generate(theirs, asked, max_tokens))
        pairs = zip(runs, rates, strict=True)
        figures[f"decode_tokens_per_s_b{size}"] = statistics.median(r.tokens_per_s for r in runs)
        figures[f"decode_tokens_per_s_b{size}_transformers"] = statistics.median(rates)
        figures[f"decode_speedup_b{size}"] = statistics.median(
            run.tokens_per_s / rate for run, rate in pairs
        )
        figures[f"overhead_share_b{size}"] = statistics.median(run.overhead_share for run in runs)
    return figures


def prefix_figures(model: PagedModel, rounds: int, prompt_tokens: int = 1000) -> dict[str, float]:
    """Return the time to first token of a repeated prompt over that of a new one."""
    core = engine_core(model, StepTimeModel({1: 1.0}))
    ratios = []
    generator = torch.Generator().manual_seed(1)
    for _ in range(rounds):
        prompt = torch.randint(1000, model.vocab_size, (prompt_tokens,), generator=generator)
        rates = [run_engine(core, [prompt.tolist()], 1).tokens_per_s for _ in range(2)]
        ratios.append(rates[0] / rates[1])
    return {"prefix_ttft_ratio": statistics.median(ratios)}
