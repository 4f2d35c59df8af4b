"""Attention over the paged cache, as a function that transformers models call.

Registered in transformers' attention registry without a mask function and used with
``use_cache=False``: the model then hands over the new rows' queries, keys and values, and
everything about the cache stays here. Honours ``scaling``, ``sliding_window``, ``softcap`` and
``s_aux`` (sinks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from models.batch import PackedBatch
from models.grouping import grouped
from models.kv_cache import KVCache, LayerShape


@dataclass(frozen=True, slots=True)
class Scoring:
    """What becomes of the scores.

    Attributes:
        scale: Factor on them.
        softcap: Soft limit, ``softcap * tanh(scores / softcap)``; None for none.
        sinks: Extra logit a head, ``[num_heads]``; None for none.
    """

    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None


class PagedAttention:
    """The attention function of one model.

    Args:
        row_by_row: Compute each row by itself, so that it cannot depend on the others.

    Each forward begins with ``begin``. Without a cache, ``shapes`` collects what each layer would
    store, and slots are the rows of the pack.
    """

    def __init__(self, row_by_row: bool = False) -> None:
        self._row_by_row = row_by_row
        self.name = f"banditserve_paged_{id(self):x}"
        self.shapes: dict[int, LayerShape] = {}
        self._cache: KVCache | None = None
        self._batch = PackedBatch()
        self._new_slots: Tensor | None = None
        AttentionInterface.register(self.name, self)

    def begin(self, batch: PackedBatch, cache: KVCache | None, device: torch.device) -> None:
        """Set the step that the next forward computes, and the cache that it reads and writes."""
        self._batch = batch
        self._cache = cache
        self._new_slots = torch.tensor(batch.new_slots(), device=device)

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Write the new rows to the cache and attend.

        Args:
            module: The attention layer; its ``layer_idx`` names the layer.
            query: ``[1, num_heads, num_rows, key_dim]``.
            key: ``[1, num_kv_heads, num_rows, key_dim]``.
            value: ``[1, num_kv_heads, num_rows, value_dim]``.
            attention_mask: None: no mask function is registered.
            scaling: Factor on the scores; ``key_dim ** -0.5`` if None.
            sliding_window: Tokens a row sees, its own included; None for all.
            softcap: Scores are ``softcap * tanh(scores / softcap)``.
            s_aux: Sink logits, ``[num_heads]``.

        Returns:
            ``[1, num_rows, num_heads, value_dim]`` and None.
        """
        layer = int(module.layer_idx)  # type: ignore[arg-type]  # nn.Module types attributes loosely
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        if self._cache is None:
            self.shapes[layer] = LayerShape(keys.shape[1], keys.shape[2], values.shape[2])
        else:
            self._cache.keys[layer][self._new_slots] = keys
            self._cache.values[layer][self._new_slots] = values
            keys, values = self._cache.keys[layer], self._cache.values[layer]
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        attend_all = attend_rows if self._row_by_row else attend_segments
        scoring = Scoring(scale, softcap, s_aux)
        output = attend_all(query[0], keys, values, self._batch, sliding_window, scoring)
        return output.unsqueeze(0), None


def attend_segments(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    batch: PackedBatch,
    window: int | None,
    scoring: Scoring,
) -> Tensor:
    """Attend from every segment's rows to its own context.

    Args:
        query: ``[num_heads, num_rows, key_dim]``.
        keys: One layer's, by slot, ``[num_slots, num_kv_heads, key_dim]``.
        values: One layer's, by slot, ``[num_slots, num_kv_heads, value_dim]``.
        batch: The step.
        window: Sliding window in tokens; None for full attention.
        scoring: What becomes of the scores.

    Returns:
        ``[num_rows, num_heads, value_dim]``.
    """
    outputs: list[tuple[slice | Tensor, Tensor]] = []
    share = query.shape[0] // keys.shape[1]
    for group in grouped(batch, query.device):
        mask = group.mask(window, query.device, query.dtype, share)
        key, value = (_at(stored, group.context) for stored in (keys, values))
        output = attend(query[:, group.rows], key, value, mask, scoring, group.size)
        outputs.append((group.rows, output))
    if len(outputs) == 1:
        return outputs[0][1]
    result = query.new_empty(query.shape[1], query.shape[0], values.shape[-1])
    for rows, output in outputs:
        result[rows] = output
    return result


def attend_rows(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    batch: PackedBatch,
    window: int | None,
    scoring: Scoring,
) -> Tensor:
    """Do what ``attend_segments`` does, each row by itself: bit for bit the same in any company."""
    outputs = []
    for segment in batch.segments:
        for row, context in enumerate(segment.row_contexts(window, query.device)):
            at = segment.first_row + row
            key, value = (_at(stored, context) for stored in (keys, values))
            outputs.append(attend(query[:, at : at + 1], key, value, None, scoring))
    return torch.cat(outputs)


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scoring: Scoring,
    size: int = 1,
) -> Tensor:
    """Attend from the rows of some segments of one shape to their contexts.

    Heads that share keys are laid out as rows, so keys and values are not repeated.

    Args:
        query: ``[num_heads, size * num_rows, key_dim]``.
        keys: ``[size * num_context, num_kv_heads, key_dim]``.
        values: ``[size * num_context, num_kv_heads, value_dim]``.
        mask: What to add to the scores of each row of each head that shares keys,
            ``[size, 1, num_heads / num_kv_heads * num_rows, num_context]``; None for nothing.
        scoring: What becomes of the scores.
        size: Number of segments.

    Returns:
        ``[size * num_rows, num_heads, value_dim]``.
    """
    num_heads, num_queries, key_dim = query.shape
    num_kv_heads, num_rows = keys.shape[1], num_queries // size
    by_segment = query.reshape(num_kv_heads, -1, size, num_rows, key_dim).permute(2, 0, 1, 3, 4)
    own = by_segment.reshape(size, num_kv_heads, -1, key_dim)
    key, value = (
        stored.view(size, -1, *stored.shape[1:]).transpose(1, 2) for stored in (keys, values)
    )
    if scoring.softcap is None and scoring.sinks is None:
        output = scaled_dot_product_attention(own, key, value, attn_mask=mask, scale=scoring.scale)
    else:
        output = _attend_plainly(own, key, value, mask, scoring)
    output = output.reshape(size, num_heads, num_rows, -1).transpose(1, 2)
    return output.reshape(num_queries, num_heads, -1)


def _at(stored: Tensor, context: slice | Tensor) -> Tensor:
    """Return keys or values of a context, ``[num_context, num_kv_heads, dim]``."""
    return stored[context] if isinstance(context, slice) else stored.index_select(0, context)


def _attend_plainly(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scoring: Scoring
) -> Tensor:
    scores = query @ keys.transpose(-1, -2) * scoring.scale
    if scoring.softcap is not None:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    if mask is not None:
        scores = scores + mask
    scores = scores.float()
    if scoring.sinks is not None:
        size, num_kv_heads, rows, _ = scores.shape
        extra = scoring.sinks.float().reshape(num_kv_heads, -1, 1)
        extra = extra.expand(-1, -1, rows // extra.shape[1]).reshape(1, num_kv_heads, rows, 1)
        extra = extra.expand(size, -1, -1, -1)
        weights = torch.softmax(torch.cat([scores, extra], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    return weights.to(values.dtype) @ values
