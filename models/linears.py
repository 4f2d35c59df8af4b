"""Which kind of linear layer holds which weights.

On CPU in float32: half the bytes where the weights allow it (``half_linear``), else packed for
oneDNN (``packed_linear``). Everything else, and where torch has neither, is a plain linear.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from models.half_linear import HalfLinear, is_half_available, lossless_exponent
from models.packed_linear import PackedLinear, is_packing_available

logger = logging.getLogger(__name__)

Linear = Callable[[Tensor], Tensor]


def plain_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Return torch's own linear layer over a weight."""
    return partial(linear, weight=weight, bias=bias)


def packed_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Return the fastest linear layer that computes what ``plain_linear`` does.

    Args:
        weight: ``[out_features, in_features]``.
        bias: ``[out_features]`` or None.
    """
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return plain_linear(weight, bias)
    exponent = lossless_exponent(weight) if is_half_available() else None
    if exponent is not None:
        return HalfLinear(weight, bias, exponent)
    if is_packing_available():
        return PackedLinear(weight, bias)
    logger.warning("this torch cannot pack linear layers; plain ones are used and are slower")
    return plain_linear(weight, bias)


def unscaled(layer: Linear) -> tuple[Linear, float]:
    """Return a layer that leaves out a factor of its results, and the factor; 1 if it has none."""
    if isinstance(layer, HalfLinear):
        return layer.unscaled, layer.scale
    return layer, 1.0


def folded(norm: Tensor, layer: Linear) -> tuple[Tensor, Linear]:
    """Move a layer's factor into the weight of the norm before it; powers of two change nothing.

    Args:
        norm: What the layer's inputs were multiplied by last, ``[in_features]``.
        layer: The layer.
    """
    if isinstance(layer, HalfLinear) and not layer.has_bias:
        return norm * layer.scale, layer.unscaled
    return norm, layer


def pack_linears(model: nn.Module) -> int:
    """Replace every linear layer of ``model`` that can be packed, in place.

    Returns:
        How many layers were replaced.
    """
    num_packed = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            weight = _weight(child)
            if weight is None:
                continue
            packed = packed_linear(weight, getattr(child, "bias", None))
            if isinstance(packed, nn.Module):
                setattr(module, name, packed)
                num_packed += 1
    return num_packed


def _weight(layer: nn.Module) -> Tensor | None:
    """Return a linear layer's weight, ``[out_features, in_features]``; None for other layers."""
    if type(layer) is nn.Linear:
        return layer.weight.detach()
    if type(layer) is Conv1D:  # GPT-2's name for a linear layer whose weight lies on its side
        return layer.weight.detach().T.contiguous()
    return None
