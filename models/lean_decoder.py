"""A small decoder of our own for Llama, Mistral, Qwen2 and Qwen3, over transformers' weights.

The same arithmetic with a third of the operators: query, key and value are one linear, gate and up
another, rotary embeddings are one complex multiplication, and nothing between the layers is more
general than these families need. On CPU in float32 the linears are packed (``linears``).

Rotary embeddings rotate pairs of numbers of a head. The weights keep the two numbers of a pair half
a head apart; rows of query and key are reordered once so that they lie side by side, which turns
the rotation into complex numbers. Scores are sums over a head, so their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, silu

from models.attention import Scoring, attend_rows, attend_segments
from models.batch import PackedBatch
from models.half_linear import is_half_available, padded_rows
from models.kv_cache import KVCache
from models.linears import Linear, folded, packed_linear, plain_linear, unscaled

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})

_STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn"})


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    qkv: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Linear
    output_scale: float
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    down_scale: float
    window: int | None


def is_lean_possible(config: Any) -> bool:
    """Return whether a model of this configuration has a lean decoder."""
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in FAMILIES
        and config.hidden_act == "silu"
        and rope.get("rope_type", "default") in _STATIC_ROPE
    )


class LeanDecoder:
    """A forward over packed batches; holds copies of the model's weights.

    Args:
        model: A transformers model of one of ``FAMILIES``, on its device and in its number format.
        packed: Pack the linears; only on CPU in float32.
        row_by_row: Compute attention row by row, so that a row cannot depend on the others.
    """

    def __init__(self, model: Any, packed: bool, row_by_row: bool = False) -> None:
        config = model.config
        self._attend_all = attend_rows if row_by_row else attend_segments
        self._make_linear = packed_linear if packed else plain_linear
        self._padded_rows = padded_rows if packed and is_half_available() else int
        self._eps = torch.tensor(float(config.rms_norm_eps), device=model.device)
        self._num_heads = int(config.num_attention_heads)
        self._num_kv_heads = int(config.num_key_value_heads)
        self._head_dim = int(
            getattr(config, "head_dim", None) or config.hidden_size // self._num_heads
        )
        self._scoring = Scoring(self._head_dim**-0.5)
        self._embedding = model.model.embed_tokens.weight.detach()
        self._norm = model.model.norm.weight.detach()
        self._head = self._make_linear(model.lm_head.weight.detach(), None)
        self._head_norm, self._folded_head = folded(self._norm, self._head)
        rotary = model.model.rotary_emb
        self._inverse_frequencies = rotary.inv_freq.float()
        self._rotary_scale = float(rotary.attention_scaling)
        self._layers = [self._layer(layer) for layer in model.model.layers]

    @torch.inference_mode()
    def forward(self, batch: PackedBatch, cache: KVCache) -> Tensor:
        """Compute one step; see ``PagedModel.forward``."""
        device = self._embedding.device
        ids = batch.input_ids()
        # Filled up once here, rather than in every linear; nobody reads what these rows become.
        ids += ids[-1:] * (self._padded_rows(batch.num_rows) - batch.num_rows)
        hidden = self._embedding[torch.tensor(ids, device=device)]
        rotation = self._rotation(torch.tensor(batch.positions(), device=device))
        slots = torch.tensor(batch.new_slots(), device=device)
        for index, layer in enumerate(self._layers):
            normed = self._normalise(hidden, layer.attention_norm)
            attended = self._attend(index, layer, normed, rotation, slots, batch, cache)
            hidden = torch.add(hidden, layer.output(attended), alpha=layer.output_scale)
            normed = self._normalise(hidden, layer.mlp_norm)
            gate, up = layer.gate_up(normed).chunk(2, dim=-1)
            hidden = torch.add(hidden, layer.down(silu(gate) * up), alpha=layer.down_scale)
        rows = torch.tensor(batch.logit_rows(), device=device, dtype=torch.long)
        if cache.hidden is None:
            return self._folded_head(self._normalise(hidden[rows], self._head_norm))
        normed = self._normalise(hidden, self._norm)
        cache.hidden[slots] = normed[: batch.num_rows]
        return self._head(normed[rows])

    def _attend(
        self,
        index: int,
        layer: _Layer,
        normed: Tensor,
        rotation: Tensor,
        slots: Tensor,
        batch: PackedBatch,
        cache: KVCache,
    ) -> Tensor:
        heads, kv_heads, dim = self._num_heads, self._num_kv_heads, self._head_dim
        num_rows = batch.num_rows
        qkv = layer.qkv(normed)[:num_rows].view(-1, heads + 2 * kv_heads, dim)
        query_key = qkv[:, : heads + kv_heads]
        if layer.query_norm is not None and layer.key_norm is not None:
            query = self._normalise(qkv[:, :heads], layer.query_norm)
            key = self._normalise(qkv[:, heads : heads + kv_heads], layer.key_norm)
            query_key = torch.cat([query, key], dim=1)
        query_key = _rotate(query_key, rotation)
        cache.keys[index][slots] = query_key[:, heads:]
        cache.values[index][slots] = qkv[:, heads + kv_heads :]
        output = self._attend_all(
            query_key[:, :heads].transpose(0, 1),
            cache.keys[index],
            cache.values[index],
            batch,
            layer.window,
            self._scoring,
        )
        output = output.reshape(-1, heads * dim)
        missing = normed.shape[0] - num_rows
        return pad(output, (0, 0, 0, missing)) if missing else output

    def _normalise(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Divide each row by its root mean square (Zhang and Sennrich 2019, arXiv:1910.07467)."""
        wide = rows.float()
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = torch.addcmul(self._eps, norm, norm, value=1 / rows.shape[-1]).rsqrt_()
        # In a short format the scaled row is rounded before the weight, as the models were trained.
        return (wide * scale).to(rows.dtype).mul_(weight)

    def _rotation(self, positions: Tensor) -> Tensor:
        """Return each row's rotation, complex ``[num_rows, 1, head_dim / 2]``."""
        angles = positions[:, None].float() * self._inverse_frequencies
        return torch.polar(torch.full_like(angles, self._rotary_scale), angles)[:, None]

    def _layer(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        query = _pair_up(attention.q_proj, self._num_heads)
        key = _pair_up(attention.k_proj, self._num_kv_heads)
        value = (attention.v_proj.weight.detach(), _bias(attention.v_proj))
        query_norm, key_norm = (
            None if norm is None else _interleave(norm.weight.detach())
            for norm in (getattr(attention, "q_norm", None), getattr(attention, "k_norm", None))
        )
        output, output_scale = unscaled(
            self._make_linear(attention.o_proj.weight.detach(), _bias(attention.o_proj))
        )
        down, down_scale = unscaled(
            self._make_linear(mlp.down_proj.weight.detach(), _bias(mlp.down_proj))
        )
        attention_norm, qkv = folded(
            layer.input_layernorm.weight.detach(), self._fused(query, key, value)
        )
        mlp_norm, gate_up = folded(
            layer.post_attention_layernorm.weight.detach(),
            self._fused(
                (mlp.gate_proj.weight.detach(), _bias(mlp.gate_proj)),
                (mlp.up_proj.weight.detach(), _bias(mlp.up_proj)),
            ),
        )
        return _Layer(
            attention_norm=attention_norm,
            qkv=qkv,
            query_norm=query_norm,
            key_norm=key_norm,
            output=output,
            output_scale=output_scale,
            mlp_norm=mlp_norm,
            gate_up=gate_up,
            down=down,
            down_scale=down_scale,
            window=_window(attention),
        )

    def _fused(self, *parts: tuple[Tensor, Tensor | None]) -> Linear:
        weight = torch.cat([weight for weight, _ in parts])
        biases = [bias for _, bias in parts if bias is not None]
        assert len(biases) in (0, len(parts))
        return self._make_linear(weight, torch.cat(biases) if biases else None)


def _window(attention: Any) -> int | None:
    """Return a layer's sliding window: Mistral has one for all, Qwen says it layer by layer."""
    config = attention.config
    shared = config.sliding_window if config.model_type == "mistral" else None
    window: int | None = getattr(attention, "sliding_window", shared)
    return window


def _bias(layer: Any) -> Tensor | None:
    return None if layer.bias is None else layer.bias.detach()


def _interleave(rows: Tensor) -> Tensor:
    """Put numbers that lie half a head apart side by side, along the first axis of one head."""
    half = rows.shape[0] // 2
    return torch.stack([rows[:half], rows[half:]], dim=1).flatten(0, 1)


def _pair_up(layer: Any, num_heads: int) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of a query or key projection with every head interleaved."""

    def reorder(rows: Tensor) -> Tensor:
        return torch.cat([_interleave(head) for head in rows.chunk(num_heads)])

    bias = _bias(layer)
    return reorder(layer.weight.detach()), None if bias is None else reorder(bias)


def _rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Rotate the pairs of each head, ``[num_rows, num_heads, head_dim]``."""
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation).flatten(-2).to(heads.dtype)
