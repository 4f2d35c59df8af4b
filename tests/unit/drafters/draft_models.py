"""Tiny draft models on disk, and drafts by forwards that are slow and obvious."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from drafters.api import Draft, NoiseKey, SessionContext
from models.noise import gumbel_noise, key_array, noise_key
from tests.unit.models.tiny_models import SHAPE, save_model

GREEDY = NoiseKey(0, 0, 0.0)

TokenPath = tuple[int, ...]


def save_draft_model(family: str, folder: Path, num_tokens: int) -> Path:
    """Write a random model of a family with a tokenizer of ``num_tokens`` tokens."""
    save_model(family, folder)
    save_tokenizer(folder, num_tokens)
    return folder


def save_smaller_model(folder: Path, num_tokens: int) -> Path:
    """Write a model of one narrow layer, with the same vocabulary as the others."""
    torch.manual_seed(1)
    shape = SHAPE | {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    save_tokenizer(folder, num_tokens)
    return folder


def save_tokenizer(folder: Path, num_tokens: int) -> None:
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(num_tokens)}, unk_token="w0"))
    make: Callable[..., PreTrainedTokenizerFast] = PreTrainedTokenizerFast
    make(tokenizer_object=words).save_pretrained(folder)


def context(token_ids: Sequence[int], noise: NoiseKey = GREEDY) -> SessionContext:
    return SessionContext(tuple(token_ids), 1, noise)


class SlowModel:
    """A model that computes every context anew.

    Args:
        folder: The model.
        num_tokens: Token ids that are smaller may be drafted.
    """

    def __init__(self, folder: Path, num_tokens: int) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
        self._num_tokens = num_tokens
        self._known: dict[TokenPath, torch.Tensor] = {}

    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Return the logits after a context, ``[num_tokens]``."""
        key = tuple(token_ids)
        if key not in self._known:
            self._known[key] = self._forward(key)
        return self._known[key]

    @torch.inference_mode()
    def _forward(self, token_ids: TokenPath) -> torch.Tensor:
        rows = self._model(torch.tensor([token_ids]), use_cache=False).logits
        logits: torch.Tensor = rows[0, -1, : self._num_tokens]
        return logits

    def sums(self, token_ids: Sequence[int], noise: NoiseKey) -> torch.Tensor:
        """Return the logits after a context and, over all tokens, the noise that belongs there."""
        key = noise_key(noise.seed, noise.choice_index, len(token_ids))
        gumbel = gumbel_noise(key_array([key]), np.arange(self._num_tokens))
        return self.logits(token_ids) + noise.temperature * torch.from_numpy(gumbel)

    def chain(self, token_ids: Sequence[int], noise: NoiseKey, most: int) -> TokenPath:
        """Go on with the largest sum ``most`` times."""
        drafted: TokenPath = ()
        while len(drafted) < most:
            drafted += (int(self.sums([*token_ids, *drafted], noise).argmax()),)
        return drafted

    def value(self, token_ids: Sequence[int], noise: NoiseKey, path: TokenPath) -> float:
        """Return the probability of a path."""
        value = 1.0
        for depth, token in enumerate(path):
            value *= float(self.sums([*token_ids, *path[:depth]], noise).softmax(-1)[token])
        return value

    def tree_values(
        self, token_ids: Sequence[int], noise: NoiseKey, most: int, limits: dict[str, int]
    ) -> list[float]:
        """Expand whole levels, then take the best: EAGLE-2's two phases, nothing left out."""
        level: list[tuple[float, TokenPath]] = [(1.0, ())]
        values: list[float] = []
        for _ in range(limits["depth"]):
            children = []
            for value, path in level:
                found = self.sums([*token_ids, *path], noise).softmax(-1).topk(limits["top_k"])
                for probability, token in zip(*map(torch.Tensor.tolist, found), strict=True):
                    children.append((value * probability, (*path, token)))
            values += [value for value, _ in children]
            level = sorted(children, key=lambda child: -child[0])[: limits["beam"]]
        return sorted(values, reverse=True)[:most]


def paths(draft: Draft) -> list[TokenPath]:
    """Return each node's path from the root."""
    found: list[TokenPath] = []
    for token, parent in zip(draft.token_ids, draft.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found
