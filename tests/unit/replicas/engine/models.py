"""Tiny random models on disk, for tests that need a real forward and no knowledge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

VOCAB = 61
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.4,
    "tie_word_embeddings": False,
}

FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=7)),
}


def save_model(family: str, folder: Path) -> Path:
    """Write a random model of a family to ``folder``."""
    torch.manual_seed(0)
    model = FAMILIES[family]()
    model.generation_config = GenerationConfig(eos_token_id=2, pad_token_id=0)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    model.save_pretrained(folder)
    return folder
