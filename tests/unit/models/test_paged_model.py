from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, T5Config, T5ForConditionalGeneration

from models.batch import PackedBatch
from models.config import PagedModelConfig
from models.errors import ModelError
from models.paged_model import PagedModel
from tests.unit.models.tiny_models import VOCAB, save_model

CONFIG = PagedModelConfig(cache_tokens=256)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_model("llama", tmp_path_factory.mktemp("llama"))


def changed(folder: Path, target: Path, **changes: Any) -> Path:
    """Copy a model with another configuration."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | changes))
    return target


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_every_decoder_gives_the_same_logits(llama: Path, lean: bool, packed: bool) -> None:
    plain = PagedModel(llama, PagedModelConfig(cache_tokens=64, lean=False, packed_linears=False))
    model = PagedModel(llama, PagedModelConfig(cache_tokens=64, lean=lean, packed_linears=packed))
    batch = PackedBatch()
    batch.add(0, [3, 4, 5], [8, 9, 10], needs_logits=True)
    assert torch.allclose(model.forward(batch), plain.forward(batch), atol=1e-5)
    assert model.is_lean == lean


def test_what_a_model_says_of_itself(llama: Path) -> None:
    model = PagedModel(llama, CONFIG)
    assert (model.vocab_size, model.max_context, set(model.eos_token_ids)) == (VOCAB, 256, {2})
    assert model.num_pages * model.page_tokens == 256
    assert model.cache_bytes == 256 * 2 * 2 * 2 * 8 * 4


def test_models_of_another_kind_are_refused_by_name(tmp_path: Path, llama: Path) -> None:
    T5ForConditionalGeneration(
        T5Config(vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    ).save_pretrained(tmp_path / "t5")
    BloomForCausalLM(
        BloomConfig(vocab_size=VOCAB, hidden_size=16, n_layer=1, n_head=2)
    ).save_pretrained(tmp_path / "bloom")
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    changed(llama, tmp_path / "rope", rope_parameters=dynamic)
    changed(llama, tmp_path / "chunked", layer_types=["full_attention", "chunked_attention"])
    (tmp_path / "empty").mkdir()
    for name, expected in {
        "t5": "t5",
        "bloom": "bloom",
        "rope": "dynamic rotary",
        "chunked": "chunked_attention",
        "empty": "no model configuration",
    }.items():
        with pytest.raises(ModelError, match=expected):
            PagedModel(tmp_path / name, PagedModelConfig(cache_tokens=256, max_context=64))


def test_limits_that_cannot_be_kept_are_refused(llama: Path) -> None:
    with pytest.raises(ModelError, match="max_context is 512, the model's limit is 256"):
        PagedModel(llama, PagedModelConfig(cache_tokens=64, max_context=512))
    with pytest.raises(ModelError, match="the cache would hold 16 tokens; it needs at least 32"):
        PagedModel(llama, PagedModelConfig(cache_tokens=16))
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match="finds no GPU"):
            PagedModel(llama, PagedModelConfig(device="cuda"))
