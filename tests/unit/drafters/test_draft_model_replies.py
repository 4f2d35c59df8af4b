"""The draft model in the engine, and the default model drafting for itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cluster.workloads import read_prompts
from drafters.client import DrafterClient
from drafters.config import DrafterConfig
from drafters.methods.draft_model import DraftModel
from models.paged_model import PagedModel
from models.store import ModelFolder
from replicas.api import GenerationRequest, SamplingParams
from replicas.config import EngineConfig
from tests.unit.drafters.draft_models import (
    context,
    save_draft_model,
    save_smaller_model,
)
from tests.unit.models.tiny_models import VOCAB
from tests.unit.replicas.engine.scripted import (
    PINNED,
    plain_reply,
    random_request,
    run,
    scripted_core,
)

NAME = str(PINNED.drafter)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_draft_model("qwen3", tmp_path_factory.mktemp("target"), VOCAB)


class Engine:
    """An engine over a target, with a draft model in its process."""

    def __init__(self, target: Path, params: dict[str, Any]) -> None:
        params = {"cache_tokens": 2000, "max_step_tokens": 32, **params}
        config = DrafterConfig(method="draft_model", params=params, placement="in_process")
        client = DrafterClient({NAME: config}, vocab_size=VOCAB)
        paged = PagedModel(target, EngineConfig(cache_tokens=2000))
        self.core = scripted_core(paged, client)


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("is_itself", [True, False])
def test_the_text_is_that_of_a_plain_loop(
    target: Path, tmp_path: Path, is_itself: bool, shape: str
) -> None:
    model = target if is_itself else save_smaller_model(tmp_path, VOCAB)
    engine = Engine(target, {"model": str(model), "shape": shape, "cache_tokens": 320})
    rng = random.Random(3)
    requests = [random_request(rng, index, list(range(3, 30))) for index in range(16)]
    plain: Any = AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager")
    expected = {one.request_id: plain_reply(plain, one) for one in requests}

    results, _ = run(engine.core, requests)

    assert {name: list(one.token_ids) for name, one in results.items()} == expected
    assert engine.core.counters.drafted_tokens > 100
    assert (engine.core.counters.accepted_tokens > 40) == is_itself


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_model_that_drafts_for_itself_is_right_even_when_it_samples(
    target: Path, shape: str
) -> None:
    """It draws with the target's noise, so every first choice is the target's own token."""
    engine = Engine(target, {"model": str(target), "shape": shape, "depth": 16})
    for index in range(6):
        sampling = SamplingParams(20, temperature=1.5, ignore_eos=True)
        engine.core.add(
            GenerationRequest(str(index), (5, 6), sampling, index, speculation=PINNED), 0
        )
    while engine.core.has_work:
        engine.core.finish(engine.core.step())
    counters = engine.core.counters
    if shape == "chain":
        assert counters.accepted_tokens == counters.verified_tokens > 80
    else:
        assert counters.accepted_tokens > 0.3 * counters.verified_tokens > 30


@pytest.mark.model
def test_the_default_model_drafts_what_it_would_say(model_folder: ModelFolder) -> None:
    drafter = DraftModel(model=str(model_folder.path), cache_tokens=4096)
    tokenizer: Any = AutoTokenizer.from_pretrained(model_folder.path)
    model: Any = AutoModelForCausalLM.from_pretrained(model_folder.path)
    model.generation_config.eos_token_id = None  # the drafter does not stop either
    wanted = []
    for index, prompt in enumerate(read_prompts()[:2]):
        token_ids = tokenizer(prompt.turns[0]).input_ids[:40]
        drafter.open(f"s{index}", context(token_ids))
        wanted.append((token_ids, f"s{index}"))
    drafts = drafter.propose([(name, 8) for _, name in wanted])
    for (token_ids, _), draft in zip(wanted, drafts, strict=True):
        said = model.generate(
            torch.tensor([token_ids]),
            attention_mask=torch.ones(1, len(token_ids), dtype=torch.long),
            do_sample=False,
            max_new_tokens=8,
        )
        assert draft.token_ids == tuple(said[0, len(token_ids) :].tolist())
