"""Tokens a second of the engine with a drafter pinned, over no speculation, in one process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from drafters.client import DrafterClient
from drafters.config import DrafterConfig
from models.config import PagedModelConfig
from models.paged_model import PagedModel
from policy_service.api import SpeculationOptions
from policy_service.client import Planner
from policy_service.config import PolicyConfig
from replicas.api import GenerationRequest, SamplingParams
from replicas.engine.core import EngineCore
from replicas.engine.step_time import StepTimeModel

OFF = SpeculationOptions(mode="off")


class Bench:
    """An engine with drafters in its process, one sequence at a time.

    Args:
        model: The target.
        step_time: Of the target.
        drafters: By method.
    """

    def __init__(
        self, model: PagedModel, step_time: StepTimeModel, drafters: Mapping[str, DrafterConfig]
    ) -> None:
        self._clients = DrafterClient(drafters, vocab_size=model.vocab_size)
        planner = Planner(PolicyConfig(), self._clients.versions(), np.random.default_rng(0))
        self._core = EngineCore(
            model, planner, self._clients, None, step_time, max_sequences=8, max_step_tokens=128
        )
        self._count = 0

    def reply(
        self, prompt: Sequence[int], max_tokens: int, options: SpeculationOptions = OFF
    ) -> tuple[list[int], float]:
        """Return the greedy reply and the tokens a second after the first."""
        self._count += 1
        sampling = SamplingParams(max_tokens, temperature=0, ignore_eos=True)
        request = GenerationRequest(
            f"r{self._count}", tuple(prompt), sampling, 0, speculation=options
        )
        self._core.add(request, time.monotonic())
        while True:
            output = self._core.step()
            self._core.finish(output)
            if output.finished:
                result = output.finished[0]
                stats = result.stats
                seconds = (stats.total_ms - stats.first_token_ms) / 1e3
                return list(result.token_ids), (len(result.token_ids) - 1) / seconds

    def close(self) -> None:
        """End the drafters."""
        self._clients.stop()


def pinned(method: str, gamma: int) -> SpeculationOptions:
    """Return the options of a request that leaves no choice."""
    return SpeculationOptions(drafter=method, gamma=gamma)


def load_target(path: Path) -> PagedModel:
    """Load the target with a cache large enough for these prompts."""
    return PagedModel(path, PagedModelConfig(cache_tokens=16384))
