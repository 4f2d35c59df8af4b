"""A forward through transformers' own model, with the paged attention in its registry."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.attention import PagedAttention
from models.batch import PackedBatch
from models.kv_cache import KVCache


class TransformersDecoder:
    """Any decoder-only model of transformers whose layers are full or sliding attention.

    Args:
        model: The model, loaded with ``attention.name`` as its attention.
        attention: The attention function it calls.
    """

    def __init__(self, model: Any, attention: PagedAttention) -> None:
        self._model = model
        self._attention = attention

    @torch.inference_mode()
    def forward(self, batch: PackedBatch, cache: KVCache | None) -> Tensor:
        """Compute one step; see ``PagedModel.forward``.

        Without a cache slots are the rows of the pack, and the attention notes each layer's shape.
        """
        if cache is None or cache.hidden is None:
            return self._forward(batch, cache)
        slots, hidden = torch.tensor(batch.new_slots(), device=self._model.device), cache.hidden

        def keep(module: Any, inputs: Any, output: Any) -> None:
            hidden[slots] = output.last_hidden_state[0]

        handle = self._model.base_model.register_forward_hook(keep)
        try:
            return self._forward(batch, cache)
        finally:
            handle.remove()

    def _forward(self, batch: PackedBatch, cache: KVCache | None) -> Tensor:
        device = self._model.device
        self._attention.begin(batch, cache, device)
        output = self._model(
            input_ids=torch.tensor([batch.input_ids()], device=device),
            position_ids=torch.tensor([batch.positions()], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(batch.logit_rows(), device=device, dtype=torch.long),
        )
        logits: Tensor = output.logits[0]
        return logits
