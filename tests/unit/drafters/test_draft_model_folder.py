"""What is checked of a draft model before it is deployed, and its version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.config import default_cache_dir
from drafters.api import TargetInfo
from drafters.config import DrafterConfig
from drafters.errors import DrafterConfigError
from drafters.loading import check_config, checks_target
from drafters.methods.draft_model import DraftModel
from models.store import ModelFolder
from models.tokenizer import fingerprint, load_tokenizer
from tests.unit.drafters.draft_models import save_draft_model, save_tokenizer
from tests.unit.models.tiny_models import VOCAB


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_draft_model("llama", tmp_path_factory.mktemp("small"), VOCAB)


def target(folder: Path, vocab_size: int = VOCAB) -> TargetInfo:
    return TargetInfo("big", vocab_size, fingerprint(load_tokenizer("big", str(folder))))


def check(target: TargetInfo, **params: Any) -> None:
    check_config(DrafterConfig(method="draft_model", params=params), target)


def test_the_same_tokenizer_is_accepted_whatever_the_padding(folder: Path, tmp_path: Path) -> None:
    assert checks_target(DrafterConfig(method="draft_model", params={"model": "m"}))
    check(target(folder), model=str(folder))
    check(target(folder, vocab_size=128), model=str(folder))


def test_another_tokenizer_is_refused_with_both_named(folder: Path, tmp_path: Path) -> None:
    save_tokenizer(tmp_path, VOCAB - 1)
    other = target(tmp_path)
    own = target(folder).tokenizer_fingerprint
    with pytest.raises(DrafterConfigError) as caught:
        check(other, model=str(folder))
    assert str(caught.value) == (
        f"draft_model: {folder.name} cannot draft for big: expected the tokenizer of big "
        f"(fingerprint {other.tokenizer_fingerprint}, {VOCAB} ids), found another "
        f"(fingerprint {own}, {VOCAB} ids)"
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model": "/no/such/folder"}, "no model at /no/such/folder: expected a folder"),
        ({"model": "./small"}, "model is an absolute folder"),
        ({"model": "tests"}, "model is an absolute folder"),
        ({"model": "owner/name"}, "for which cache_dir is the absolute folder to keep it in"),
        ({"model": "owner/name", "cache_dir": "cache"}, "got 'cache'"),
        ({"model": "a/b/c", "cache_dir": "/tmp"}, "unknown model 'a/b/c'"),
        ({"model": 3}, "model and cache_dir are text, got 3"),
    ],
)
def test_models_that_are_not_there_are_refused(
    folder: Path, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(DrafterConfigError, match=f"^draft_model: .*{message}"):
        check(target(folder), **params)
    with pytest.raises(DrafterConfigError, match=f"^draft_model: .*{message}"):
        DraftModel(**params)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shape", "star"),
        ("device", "tpu"),
        ("dtype", "int8"),
        ("max_tokens", 0),
        ("top_k", True),
        ("beam", 1.5),
        ("depth", 0),
        ("max_step_tokens", 0),
        ("num_threads", 0),
        ("cache_tokens", -1),
        ("max_context", "long"),
    ],
)
def test_values_that_cannot_be_are_refused(folder: Path, name: str, value: Any) -> None:
    params = {"model": str(folder), name: value}
    for refused in (lambda: check(target(folder), **params), lambda: DraftModel(**params)):
        with pytest.raises(DrafterConfigError, match=f"^draft_model: {name} is .* got {value!r}"):
            refused()


def test_folders_that_hold_no_usable_model_are_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in copy.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(DrafterConfigError, match="copy has no readable tokenizer"):
        check(target(folder), model=str(copy))
    with pytest.raises(DrafterConfigError, match="needs at least 32"):
        DraftModel(model=str(folder), cache_tokens=16)


def test_the_version_is_of_model_and_parameters(folder: Path, tmp_path: Path) -> None:
    same = tmp_path / folder.name
    shutil.copytree(folder, same)
    other = tmp_path / "other" / folder.name
    shutil.copytree(folder, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-3}))

    def version(model: Path, **params: Any) -> str:
        return DraftModel(model=str(model), cache_tokens=64, **params).version

    plain = version(folder)
    assert folder.name in plain
    assert version(same, num_threads=2) == plain
    different = [
        version(other),
        version(folder, shape="tree"),
        version(folder, shape="tree", top_k=2),
        version(folder, shape="tree", beam=2),
        version(folder, shape="tree", depth=2),
        version(folder, max_tokens=2),
        version(folder, max_context=64),
        version(folder, max_step_tokens=9),
        version(folder, dtype="bfloat16"),
    ]
    assert len({plain, *different}) == 1 + len(different)


@pytest.mark.model
def test_a_model_may_be_named_where_it_is_kept(model_folder: ModelFolder) -> None:
    check(target(model_folder.path), model=model_folder.name, cache_dir=str(default_cache_dir()))
