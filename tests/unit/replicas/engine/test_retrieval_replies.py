"""With every retrieval method the text is that of a plain loop."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from drafters.client import DrafterClient
from drafters.config import DrafterConfig
from drafters.datastore.builder import Vocabulary
from models.config import PagedModelConfig
from models.paged_model import PagedModel
from replicas.api import GenerationRequest
from tests.unit.drafters.datastores import build
from tests.unit.models.tiny_models import VOCAB, save_model
from tests.unit.replicas.engine.scripted import (
    PINNED,
    plain_reply,
    random_request,
    run,
    scripted_core,
)

NAME = str(PINNED.drafter)
METHODS: dict[str, dict[str, Any]] = {
    "prompt_lookup": {},
    "suffix-tree": {"shape": "tree"},
    "suffix-chain": {"shape": "chain"},
    "rest-tree": {"shape": "tree"},
    "rest-chain": {"shape": "chain"},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PagedModel:
    torch.set_num_threads(1)
    folder = save_model("llama", tmp_path_factory.mktemp("llama"))
    return PagedModel(folder, PagedModelConfig(cache_tokens=2000, page_tokens=4))


@pytest.fixture(scope="module")
def requests() -> list[GenerationRequest]:
    rng = random.Random(5)
    return [random_request(rng, index, list(range(3, 30))) for index in range(24)]


@pytest.fixture(scope="module")
def expected(
    requests: list[GenerationRequest], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[int]]:
    folder = save_model("llama", tmp_path_factory.mktemp("plain"))
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return {one.request_id: plain_reply(plain, one) for one in requests}


@pytest.mark.parametrize("name", list(METHODS))
def test_the_text_is_that_of_a_plain_loop(
    name: str,
    model: PagedModel,
    requests: list[GenerationRequest],
    expected: dict[str, list[int]],
    tmp_path: Path,
) -> None:
    method, params = name.partition("-")[0], dict(METHODS[name])
    if method == "rest":
        # Parts of the very replies, so that some of what is drafted is right.
        texts = [reply[: 1 + len(reply) // 2] for reply in expected.values()]
        params["datastore"] = str(build(tmp_path, texts, Vocabulary("tiny", VOCAB, "f" * 16))[0])
    config = DrafterConfig(method=method, params=params, placement="in_process")
    client = DrafterClient({NAME: config}, vocab_size=VOCAB)
    core = scripted_core(model, client)
    # Twice: what a method learnt from the first replies makes it right in the second.
    for _ in range(2):
        results, _ = run(core, requests)
        assert {key: list(one.token_ids) for key, one in results.items()} == expected
    client.stop()
    assert core.cache_usage == 0
    assert core.counters.verified_tokens > 20
    assert core.counters.accepted_tokens > 0
