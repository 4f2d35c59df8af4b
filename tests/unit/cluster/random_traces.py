"""Traces of made-up replies, for tests that need no model."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from cluster.traces.format import Trace
from cluster.traces.recording import Recorder, Reply
from drafters.api import NoiseKey
from drafters.config import DrafterConfig
from drafters.loading import load_drafter
from policy_service.api import RequestFeatures
from policy_service.step_times import StepTimes

TIMES = StepTimes((1, 2, 4, 8, 16, 32, 64), (10, 11, 12, 14, 19, 30, 55), 0.5, 0.001)
METHODS: dict[str, dict[str, Any]] = {"prompt_lookup": {}, "suffix": {}}


def repetitive(rng: random.Random, length: int) -> list[int]:
    """Return tokens that now and then repeat what was before."""
    tokens = [rng.randrange(20)]
    while len(tokens) < length:
        if rng.random() < 0.3:
            start = rng.randrange(len(tokens))
            tokens += tokens[start : start + rng.randrange(1, 12)]
        else:
            tokens.append(rng.randrange(20))
    return tokens[:length]


def recorder(max_size: int = 8) -> Recorder:
    drafters = {
        name: load_drafter(DrafterConfig(method=name, params=params))
        for name, params in METHODS.items()
    }
    return Recorder(drafters, max_size, time.perf_counter)


def reply_of(prompt: Sequence[int], tokens: Sequence[int], name: str = "r") -> Reply:
    features = RequestFeatures(route="chat", num_prompt_tokens=len(prompt))
    return Reply(name, "w", "c", features, prompt, tokens, NoiseKey(0, 0, 0.0))


def random_trace(seed: int, num_requests: int = 6, max_size: int = 8) -> Trace:
    rng = random.Random(seed)
    made = recorder(max_size)
    for index in range(num_requests):
        text = repetitive(rng, 20 + rng.randrange(60))
        cut = rng.randrange(5, 15)
        made.record(reply_of(text[:cut], text[cut:], f"r{index}"))
    return made.trace(model="m", machine="here", temperature=0.0, max_tokens=100, times=TIMES)
