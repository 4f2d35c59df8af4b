from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, Phi3Config, Phi3ForCausalLM

from models.batch import PackedBatch
from models.config import PagedModelConfig
from models.paged_model import PagedModel
from tests.unit.models.tiny_models import SHAPE, VOCAB

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.0, 1.5, 2.0],
    "long_factor": [2.0, 4.0, 6.0, 9.0],
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize("max_context", [32, 256])
def test_longrope_is_that_of_the_longest_context(max_context: int, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Phi3Config(
        **SHAPE, pad_token_id=0, original_max_position_embeddings=32, rope_parameters=LONGROPE
    )
    written = Phi3ForCausalLM(config)
    written.generation_config = GenerationConfig(eos_token_id=2, pad_token_id=0)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    written.save_pretrained(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    tokens = torch.randint(VOCAB, (max_context,), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        # Only a sequence as long as the context has the frequencies of the context in the original.
        expected = plain(tokens[None]).logits[0, -1]
    model = PagedModel(tmp_path, PagedModelConfig(cache_tokens=512, max_context=max_context))
    for start in range(0, max_context, 16):
        batch = PackedBatch()
        stop = start + 16
        batch.add(start, tokens[start:stop].tolist(), list(range(stop)), needs_logits=True)
        logits = model.forward(batch)
    assert torch.allclose(logits[0], expected, atol=1e-4)
