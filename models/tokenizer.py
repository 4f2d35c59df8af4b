"""A model's tokenizer: how to load it and how to tell whether two are the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeAlias

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from models.errors import ModelError

Tokenizer: TypeAlias = PreTrainedTokenizerBase
"""A Hugging Face tokenizer of any kind."""


def load_tokenizer(name: str, model_dir: str) -> Tokenizer:
    """Load a model's tokenizer from its folder.

    Raises:
        ModelError: If there is none.
    """
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(Path(model_dir), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"model {name} has no readable tokenizer: {error}") from error
    return tokenizer


def fingerprint(tokenizer: Tokenizer) -> str:
    """Return a short hash of the vocabulary: tokenizers share it if ids mean the same to them.

    How a text is split is not part of it; a drafter is only ever given ids.
    """
    digest = hashlib.sha256()
    for token, token_id in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        digest.update(f"{token_id}\0{token}\n".encode())
    return digest.hexdigest()[:16]
