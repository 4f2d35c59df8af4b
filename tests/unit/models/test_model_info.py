"""What is read of a model's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.errors import ModelError
from models.info import ModelInfo, read_model_info
from models.tokenizer import load_tokenizer
from tests.unit.models.small_tokenizers import byte_level


def folder(path: Path, **config: object) -> str:
    (path / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    return str(path)


def test_the_models_own_context(tmp_path: Path) -> None:
    model_dir = folder(tmp_path, max_position_embeddings=512, vocab_size=340)
    assert read_model_info("tiny", model_dir) == ModelInfo("tiny", 512, 340)
    assert read_model_info("tiny", model_dir, 100).context_length == 100
    assert read_model_info("tiny", model_dir, 1000).context_length == 512


def test_other_names_for_it(tmp_path: Path) -> None:
    model_dir = folder(tmp_path, model_type="gpt2", n_positions=128, vocab_size=340)
    assert read_model_info("tiny", model_dir).context_length == 128


def test_no_context_length(tmp_path: Path) -> None:
    model_dir = folder(tmp_path, model_type="bloom", vocab_size=340)
    with pytest.raises(ModelError, match="set max_context"):
        read_model_info("tiny", model_dir)
    assert read_model_info("tiny", model_dir, 64).context_length == 64


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no readable configuration"):
        read_model_info("tiny", str(tmp_path))
    with pytest.raises(ModelError, match="no readable tokenizer"):
        load_tokenizer("tiny", str(tmp_path))


def test_the_tokenizer(tmp_path: Path) -> None:
    byte_level().save_pretrained(tmp_path)
    model_dir = folder(tmp_path, max_position_embeddings=512, vocab_size=340)
    tokenizer = load_tokenizer("tiny", model_dir)
    assert tokenizer.encode("Hello") == byte_level().encode("Hello")
    assert tokenizer.chat_template is not None
