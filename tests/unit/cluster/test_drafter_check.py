"""Drafters that do not fit the model are refused before anything is deployed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.drafter_check import check_drafters, needs_check
from cluster.errors import ConfigError
from drafters.config import DrafterConfig
from drafters.datastore.builder import Vocabulary
from models.errors import ModelError
from models.store import ModelFolder
from models.tokenizer import fingerprint
from tests.unit.drafters.datastores import build
from tests.unit.models.small_tokenizers import byte_level

DOCUMENTS = [[1, 2, 3, 4, 5]]
VOCAB_SIZE = 340


@pytest.fixture
def model(tmp_path: Path) -> ModelFolder:
    folder = tmp_path / "model"
    byte_level().save_pretrained(folder)
    config = {"model_type": "llama", "vocab_size": VOCAB_SIZE, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    return ModelFolder(folder, "tiny", "made here")


def rest(folder: Path, tokenizer_fingerprint: str, vocab_size: int = VOCAB_SIZE) -> DrafterConfig:
    folder.mkdir()
    path, _ = build(folder, DOCUMENTS, Vocabulary("other", vocab_size, tokenizer_fingerprint))
    return DrafterConfig(method="rest", params={"datastore": str(path)})


def test_a_drafter_that_fits_passes(tmp_path: Path, model: ModelFolder) -> None:
    drafters = {"rest": rest(tmp_path / "d", fingerprint(byte_level())), "pld": DrafterConfig()}
    assert needs_check(drafters)
    check_drafters(drafters, model)


def test_every_drafter_that_does_not_fit_is_named(tmp_path: Path, model: ModelFolder) -> None:
    drafters = {
        "one": rest(tmp_path / "d1", "e" * 16),
        "pld": DrafterConfig(),
        "two": rest(tmp_path / "d2", fingerprint(byte_level()), VOCAB_SIZE + 1),
        "three": DrafterConfig(method="rest", params={"datastore": str(tmp_path / "none")}),
    }
    with pytest.raises(ConfigError) as caught:
        check_drafters(drafters, model)
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "drafters.one",
        "drafters.two",
        "drafters.three",
    ]
    assert f"expected fingerprint {fingerprint(byte_level())}, found eeeeeeeeeeeeeeee" in lines[0]
    assert "expected at most 340, found 341" in lines[1]


def test_methods_that_fit_every_model_need_no_check() -> None:
    assert not needs_check({"pld": DrafterConfig()})


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no readable configuration"):
        check_drafters({}, ModelFolder(tmp_path, "empty", "made here"))
