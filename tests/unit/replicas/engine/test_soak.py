"""Two thousand short requests: every page comes back and memory does not grow."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import psutil
import torch

from models.config import PagedModelConfig
from models.paged_model import PagedModel
from tests.unit.models.tiny_models import VOCAB, save_model
from tests.unit.replicas.engine.scripted import ScriptedDrafters, random_request, run, scripted_core

REQUESTS = 2000
WARM_UP = 400
GROUP = 100


def resident_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    rng = random.Random(0)
    model = PagedModel(
        save_model("llama", tmp_path), PagedModelConfig(cache_tokens=600, page_tokens=4)
    )
    guesses = {f"r{i}": [rng.randrange(VOCAB) for _ in range(30)] for i in range(REQUESTS)}
    drafters = ScriptedDrafters(guesses, rng)
    core = scripted_core(model, drafters, max_sequences=16)
    prefix = [rng.randrange(3, VOCAB) for _ in range(20)]
    before = 0
    for first in range(0, REQUESTS, GROUP):
        if first == WARM_UP:
            before = resident_bytes()
        requests = [random_request(rng, first + i, prefix) for i in range(GROUP)]
        results, _ = run(core, requests)
        assert len(results) == GROUP
        assert core.cache_usage == 0
        assert not drafters.num_open
    assert core.num_waiting == core.num_running == 0
    assert resident_bytes() < 1.03 * before
