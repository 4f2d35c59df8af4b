"""Linear layers whose weights are packed once for oneDNN, for few rows in float32 on CPU.

``torch.nn.functional.linear`` unpacks its weights at every call, which dominates when only a few
rows pass through. Packing with a hint of eight rows makes those calls two to three times as fast,
and a row's result no longer depends on how many rows travel with it (checked at start).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_ROWS_HINT = 8


def is_packing_available() -> bool:
    """Return whether this torch has the operators and a oneDNN to run them."""
    return (
        bool(torch._C._has_mkldnn)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


class PackedLinear(nn.Module):
    """A linear layer without gradients whose weight is kept packed.

    Args:
        weight: ``[out_features, in_features]``, float32 on CPU.
        bias: ``[out_features]`` or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        # A plain attribute: a oneDNN tensor is opaque and cannot be a buffer of a state dict.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS_HINT)
        self._bias = None if bias is None else bias.detach()

    def forward(self, rows: Tensor) -> Tensor:
        """Return ``rows @ weight.T + bias``, ``[..., out_features]``."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self._bias, "none", [], ""
        )
        return result
