"""A tiny random model on disk: for drills that are about faults, not about speed or sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "drill-model"
_TEXT = (
    "The quick brown fox jumps over the lazy dog.",
    "Tell me about the sea, the mountains and the towns between them.",
    "def total(items):\n    return sum(item.price for item in items)\n",
)
_TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)
_VOCAB = 384


def save_small_model(folder: Path) -> Path:
    """Write the model and its tokenizer to a folder named after it in ``folder``; return that.

    The same on every call: two layers, some 150,000 weights, contexts of 4,096 tokens.
    """
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    without_progress: Callable[..., Any] = logging.disable_progress_bar
    without_progress()

    path = folder / NAME
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": _VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "initializer_range": 0.4,
        "tie_word_embeddings": False,
    }
    model = LlamaForCausalLM(LlamaConfig(**shape))
    settings: Callable[..., Any] = GenerationConfig
    model.generation_config = settings(eos_token_id=1, pad_token_id=0)
    model.save_pretrained(path)
    _tokenizer().save_pretrained(path)
    return path


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCAB,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    make: Callable[..., Any] = PreTrainedTokenizerFast
    return make(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=_TEMPLATE
    )
