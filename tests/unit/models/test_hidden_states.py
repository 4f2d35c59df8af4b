from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from models.batch import PackedBatch
from models.config import PagedModelConfig
from models.errors import ModelError
from models.paged_model import PagedModel
from tests.unit.models.tiny_models import save_model

TOKENS = [5, 9, 11, 7]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2"])
def test_they_are_what_the_model_itself_has(family: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    folder = save_model(family, tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with torch.inference_mode():
        expected = plain.base_model(torch.tensor([TOKENS])).last_hidden_state[0]
    model = PagedModel(folder, PagedModelConfig(cache_tokens=64, keep_hidden_states=True))
    batch = PackedBatch()
    batch.add(0, [8], [0], needs_logits=True)
    # A wrong sibling lies between, as after a tree; moving the branch together moves its states.
    batch.add(0, [5, 3, 9, 11, 7], [20, 21, 22, 23, 24], needs_logits=True, tree=(-1, -1, 1, 2))
    model.forward(batch)
    model.cache.move([22, 23, 24], [21, 22, 23])
    assert torch.allclose(model.hidden_states([20, 21, 22, 23]), expected, atol=1e-5)


def test_nobody_pays_who_does_not_ask(tmp_path: Path) -> None:
    folder = save_model("llama", tmp_path)
    model = PagedModel(folder, PagedModelConfig(cache_tokens=64))
    keeping = PagedModel(folder, PagedModelConfig(cache_tokens=64, keep_hidden_states=True))
    assert model.cache.hidden is None
    assert keeping.cache_bytes == model.cache_bytes + 64 * 32 * 4
    with pytest.raises(ModelError, match="set keep_hidden_states"):
        model.hidden_states([0])
