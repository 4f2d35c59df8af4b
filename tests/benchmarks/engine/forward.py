"""One forward of a few tokens after a cached context: ours against transformers'."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from models.batch import PackedBatch
from models.paged_model import PagedModel

CONTEXT = 200
TOKENS = (1, 2, 4, 8, 16, 32)


def load_transformers(path: Path) -> Any:
    """Load a model as a user of transformers would, in float32."""
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="sdpa"
    )
    return model.train(False)


class OurForward:
    """A paged model with ``CONTEXT`` tokens in its cache."""

    def __init__(self, model: PagedModel, context: list[int]) -> None:
        self._model = model
        batch = PackedBatch()
        batch.add(0, context, list(range(CONTEXT)), needs_logits=True)
        model.forward(batch)

    def seconds(self, num_tokens: int) -> float:
        """Return how long a forward of so many tokens takes."""
        slots = list(range(CONTEXT + num_tokens))
        batch = PackedBatch()
        batch.add(CONTEXT, range(num_tokens), slots, True, tree=range(-1, num_tokens - 2))
        started = time.perf_counter()
        self._model.forward(batch)
        return time.perf_counter() - started


class TheirForward:
    """A transformers model with ``CONTEXT`` tokens in its cache."""

    def __init__(self, model: Any, context: list[int]) -> None:
        self._model = model
        self._cache = DynamicCache()
        with torch.inference_mode():
            model(torch.tensor([context]), cache=self._cache)

    def seconds(self, num_tokens: int) -> float:
        """Return how long a forward of so many tokens takes."""
        tokens = torch.arange(num_tokens)[None]
        started = time.perf_counter()
        with torch.inference_mode():
            self._model(tokens, cache=self._cache)
        seconds = time.perf_counter() - started
        self._cache.crop(-num_tokens)
        return seconds


def forward_figures(model: PagedModel, theirs: Any, rounds: int) -> dict[str, float]:
    """Alternate the two and return medians: milliseconds, and the ratio of each pair."""
    context = torch.randint(
        1000, model.vocab_size, (CONTEXT,), generator=torch.Generator().manual_seed(0)
    ).tolist()
    ours, other = OurForward(model, context), TheirForward(theirs, context)
    figures: dict[str, float] = {}
    for num_tokens in TOKENS:
        pairs = [(ours.seconds(num_tokens), other.seconds(num_tokens)) for _ in range(rounds + 2)]
        pairs = pairs[2:]  # the first warm up
        figures[f"forward_ms_{num_tokens}"] = 1e3 * statistics.median(a for a, _ in pairs)
        figures[f"forward_ms_{num_tokens}_transformers"] = 1e3 * statistics.median(
            b for _, b in pairs
        )
        figures[f"forward_speedup_{num_tokens}"] = statistics.median(b / a for a, b in pairs)
    return figures
