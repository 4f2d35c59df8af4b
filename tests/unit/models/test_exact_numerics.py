"""With ``exact_numerics`` a row's logits are bit for bit the same in any company."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.batch import PackedBatch
from models.config import PagedModelConfig
from models.errors import ModelError
from models.paged_model import PagedModel
from models.store import ModelFolder
from tests.unit.models.tiny_models import FAMILIES, VOCAB, save_model

CONFIG = PagedModelConfig(cache_tokens=512, exact_numerics=True)
# Experts are computed over as many rows as chose them, by operators that are not row-invariant.
INEXACT = {"mixtral"}


def chain_logits(model: PagedModel, context: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """Return the logits of ``tokens`` after ``context``, computed in one step of all of them."""
    batch = PackedBatch()
    batch.add(
        len(context),
        tokens,
        list(range(len(context) + len(tokens))),
        needs_logits=True,
        tree=range(-1, len(tokens) - 2),
    )
    return model.forward(batch)


def check_exact(model: PagedModel, context: list[int], tokens: list[int]) -> None:
    batch = PackedBatch()
    batch.add(0, context, list(range(len(context))), needs_logits=True)
    model.forward(batch)
    together = chain_logits(model, context, tokens)
    for index, token in enumerate(tokens):
        alone = chain_logits(model, [*context, *tokens[:index]], [token])
        assert torch.equal(alone[0], together[index]), index


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - INEXACT))
def test_one_row_equals_eight(family: str, tmp_path: Path) -> None:
    model = PagedModel(save_model(family, tmp_path), CONFIG)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCAB, (41,), generator=generator).tolist()
    check_exact(model, tokens[:33], tokens[33:])


@pytest.mark.parametrize("family", sorted(INEXACT))
def test_a_model_that_cannot_be_exact_is_refused(family: str, tmp_path: Path) -> None:
    folder = save_model(family, tmp_path)
    with pytest.raises(ModelError, match=f"{family}: exact_numerics cannot be had"):
        PagedModel(folder, CONFIG)


def test_other_companions_change_nothing(tmp_path: Path) -> None:
    model = PagedModel(save_model("llama", tmp_path), CONFIG)
    expected = chain_logits(model, [], [5, 6, 7])
    batch = PackedBatch()
    batch.add(0, [9] * 20, list(range(100, 120)), needs_logits=False)
    batch.add(0, [5, 6, 7], list(range(200, 203)), needs_logits=True, tree=(-1, 0))
    batch.add(0, [8], [300], needs_logits=True)
    assert torch.equal(model.forward(batch)[:3], expected)


def test_siblings_of_a_tree_change_nothing(tmp_path: Path) -> None:
    model = PagedModel(save_model("mistral", tmp_path), CONFIG)
    expected = chain_logits(model, [], [5, 6, 7])
    batch = PackedBatch()
    batch.add(0, [5, 9, 6, 8, 7], list(range(5)), needs_logits=True, tree=(-1, -1, 0, 1))
    assert torch.equal(model.forward(batch)[[0, 2, 4]], expected)


@pytest.mark.model
def test_the_default_model_on_two_threads(model_folder: ModelFolder) -> None:
    torch.set_num_threads(2)
    model = PagedModel(model_folder.path, CONFIG)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.vocab_size, (208,), generator=generator).tolist()
    check_exact(model, tokens[:200], tokens[200:])


def test_it_needs_float32(tmp_path: Path) -> None:
    folder = save_model("llama", tmp_path)
    config = CONFIG.model_copy(update={"dtype": "bfloat16"})
    with pytest.raises(ModelError, match=r"needs float32 on cpu, got torch\.bfloat16 on cpu"):
        PagedModel(folder, config)
