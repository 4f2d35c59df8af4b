"""Replies of a target model with drafters in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from drafters.client import DrafterClient
from models.config import PagedModelConfig
from models.paged_model import PagedModel
from policy_service.api import SpeculationOptions
from policy_service.client import Planner
from policy_service.config import PolicyConfig
from replicas.api import GenerationRequest, GenerationResult, SamplingParams
from replicas.engine.core import EngineCore
from replicas.engine.step_time import StepTimeModel

OFF = SpeculationOptions(mode="off")
_MAX_STEP_TOKENS = 128


class ReplyMaker:
    """An engine with drafters in its process.

    Args:
        model: The target.
        step_time: Of the target.
        drafters: Drafters that requests may pin; this ends them.
    """

    def __init__(
        self, model: PagedModel, step_time: StepTimeModel, drafters: DrafterClient
    ) -> None:
        self._drafters = drafters
        planner = Planner(PolicyConfig(), drafters.versions(), np.random.default_rng(0))
        self._core = EngineCore(
            model,
            planner,
            drafters,
            None,
            step_time,
            max_sequences=16,
            max_step_tokens=_MAX_STEP_TOKENS,
        )
        self._count = 0

    def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        seed: int = 0,
        options: SpeculationOptions = OFF,
    ) -> GenerationResult:
        """Return the reply to a prompt."""
        self._count += 1
        request = GenerationRequest(
            f"r{self._count}", tuple(prompt), sampling, seed, speculation=options
        )
        return self.generate_all([request])[0]

    def generate_all(
        self,
        requests: Sequence[GenerationRequest],
        on_finished: Callable[[int], None] = lambda num_finished: None,
    ) -> list[GenerationResult]:
        """Return the replies to some requests, which run side by side; in their order.

        Args:
            requests: The requests.
            on_finished: Told how many have finished, whenever one has.
        """
        for request in requests:
            self._core.add(request, time.monotonic())
        results: dict[str, GenerationResult] = {}
        while self._core.has_work:
            output = self._core.step()
            self._core.finish(output)
            results |= {result.request_id: result for result in output.finished}
            if output.finished:
                on_finished(len(results))
        return [results[request.request_id] for request in requests]

    def close(self) -> None:
        """End the drafters."""
        self._drafters.stop()


def load_target(path: Path, cache_tokens: int = 16384) -> PagedModel:
    """Load a target with a cache large enough for common prompts."""
    return PagedModel(path, PagedModelConfig(cache_tokens=cache_tokens))
