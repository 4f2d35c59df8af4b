"""The default model on real prompts: the engine's tokens are those of a plain loop."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from cluster.workloads import read_prompts
from models.config import PagedModelConfig
from models.paged_model import PagedModel
from models.store import ModelFolder
from models.tokenizer import load_tokenizer
from replicas.api import GenerationRequest, SamplingParams
from replicas.engine.sampler import Sampler
from tests.unit.replicas.engine.scripted import (
    PINNED,
    REPLY_TO,
    ScriptedDrafters,
    run,
    scripted_core,
)

pytestmark = pytest.mark.model

MAX_TOKENS = 16
SAMPLINGS = [
    SamplingParams(MAX_TOKENS, temperature=0.0, ignore_eos=True),
    SamplingParams(MAX_TOKENS, temperature=0.8, top_p=0.9, ignore_eos=True),
    SamplingParams(MAX_TOKENS, temperature=1.0, frequency_penalty=0.5, ignore_eos=True),
]


def cached_reply(model: Any, request: GenerationRequest, vocab_size: int) -> list[int]:
    """Generate one sequence with transformers' own cache, one token at a time."""
    sampler = Sampler(
        request.sampling,
        request.seed,
        request.choice_index,
        request.prompt_token_ids,
        (),
        torch.arange(vocab_size),
    )
    cache, tokens = DynamicCache(), list(request.prompt_token_ids)
    new = tokens
    with torch.inference_mode():
        for _ in range(MAX_TOKENS):
            logits = model(torch.tensor([new]), cache=cache).logits[0, -1]
            token = sampler.token(logits, len(tokens))
            sampler.emit(token)
            tokens.append(token)
            new = [token]
    return tokens[len(request.prompt_token_ids) :]


def test_any_draft_gives_the_tokens_of_a_plain_loop(model_folder: ModelFolder) -> None:
    torch.set_num_threads(2)
    rng = random.Random(0)
    tokenizer = load_tokenizer(model_folder.name, str(model_folder.path))
    prompts = [tokenizer.encode(prompt.turns[0])[:80] for prompt in read_prompts()[::8]]
    requests = [
        GenerationRequest(
            f"r{i}{j}", tuple(prompt), sampling, 7 * i + j, speculation=PINNED, reply_to=REPLY_TO
        )
        for i, prompt in enumerate(prompts)
        for j, sampling in enumerate(SAMPLINGS)
    ]
    theirs = AutoModelForCausalLM.from_pretrained(model_folder.path, dtype=torch.float32)
    vocab_size = theirs.config.vocab_size
    expected = {one.request_id: cached_reply(theirs, one, vocab_size) for one in requests}
    del theirs
    drafters = ScriptedDrafters(expected, rng)
    # Too few pages for all at once, so that some are computed anew.
    model = PagedModel(model_folder.path, PagedModelConfig(cache_tokens=128, page_tokens=4))
    core = scripted_core(model, drafters)

    results, streamed = run(core, requests)

    assert {name: list(result.token_ids) for name, result in results.items()} == expected
    assert streamed == expected
    assert core.num_preemptions > 0
    assert core.counters.accepted_tokens > 20
