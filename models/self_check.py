"""Checks at start that a model's packed forward is its plain forward.

Some models would be silently wrong behind a paged attention (positions in the attention itself,
chunks, recurrent layers). Two sequences packed into one step must give the logits that the model's
own eager forward gives for each of them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from models.attention import PagedAttention
from models.batch import PackedBatch
from models.errors import ModelError
from models.kv_cache import LayerShape
from models.transformers_decoder import TransformersDecoder

_LENGTHS = (7, 12)


class SelfCheck:
    """Samples, and what the model itself says to them.

    Args:
        model: The model, loaded with ``attention.name`` as its attention.
        attention: The paged attention.
    """

    def __init__(self, model: Any, attention: PagedAttention) -> None:
        self._model = model
        self._attention = attention
        self.tolerance = 1e-3 if model.dtype == torch.float32 else 5e-2
        generator = torch.Generator().manual_seed(0)
        vocab_size = model.config.get_text_config().vocab_size
        self._samples: list[list[int]] = [
            torch.randint(vocab_size, (length,), generator=generator).tolist()
            for length in _LENGTHS
        ]
        self._expected = self._plain_logits()

    def layer_shapes(self) -> list[LayerShape]:
        """Check the paged forward; return the shapes of its layers' keys and values.

        Raises:
            ModelError: If logits differ, or a layer did not pass through the paged attention.
        """
        config = self._model.config
        decoder = TransformersDecoder(self._model, self._attention)
        error = self.error_of(lambda batch: decoder.forward(batch, None))
        shapes = self._attention.shapes
        num_layers = config.get_text_config().num_hidden_layers
        if sorted(shapes) != list(range(num_layers)):
            raise ModelError(
                f"{config.model_type}: only {len(shapes)} of {num_layers} layers are attention "
                "layers that can be served"
            )
        if error > self.tolerance:
            raise ModelError(
                f"{config.model_type}: a packed forward differs from the plain one by {error:.2g} "
                "of the largest logit; this model cannot be served"
            )
        return [shapes[layer] for layer in range(num_layers)]

    def error_of(self, forward: Callable[[PackedBatch], Tensor]) -> float:
        """Return a packed forward's largest error, as a share of the largest logit."""
        batch = PackedBatch()
        for sample in self._samples:
            slots = list(range(batch.num_rows, batch.num_rows + len(sample)))
            batch.add(0, sample, slots, needs_logits=True)
        packed = forward(batch).float()
        errors = (packed - self._expected).abs().amax(-1)
        return float((errors / self._expected.abs().amax(-1).clamp_min(1e-6)).max())

    def exactness_of(self, forward: Callable[[PackedBatch], Tensor]) -> None:
        """Check that rows computed together are bit for bit the rows computed one by one.

        Args:
            forward: Over an empty cache of at least as many slots as the longest sample.

        Raises:
            ModelError: If not.
        """
        tokens = max(self._samples, key=len)
        together = PackedBatch()
        together.add(0, tokens, list(range(len(tokens))), True, tree=range(-1, len(tokens) - 2))
        logits = forward(together)
        for row, token in enumerate(tokens):
            alone = PackedBatch()
            alone.add(row, [token], list(range(row + 1)), needs_logits=True)
            if not torch.equal(forward(alone)[0], logits[row]):
                raise ModelError(
                    f"{self._model.config.model_type}: exact_numerics cannot be had, a row of "
                    f"logits depends on how many others are computed with it (row {row})"
                )

    @torch.inference_mode()
    def _plain_logits(self) -> Tensor:
        """Return the last row of each sample's own forward, ``[num_samples, vocab_size]``."""
        self._model.set_attn_implementation("eager")
        rows = [
            self._model(
                input_ids=torch.tensor([sample], device=self._model.device), use_cache=False
            ).logits[0, -1]
            for sample in self._samples
        ]
        self._model.set_attn_implementation(self._attention.name)
        return torch.stack(rows).float()
