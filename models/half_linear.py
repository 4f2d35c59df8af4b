"""Linear layers whose weights are stored in half the bytes without losing any of them.

A forward of few rows takes as long as reading the weights. Checkpoints are trained and published in
16 bits; held in float32, half of what is read are zeros. Here such weights are stored as float16,
times a power of two that keeps them in its range, and FBGEMM multiplies float32 rows by them, with
float32 sums: the arithmetic of a float32 linear, at twice the speed. Weights that 16 bits cannot
hold are not stored so (``lossless_exponent``).

FBGEMM computes one or two rows left over in another order than larger groups. Such row counts are
filled up (``padded_rows``), so a row's result does not depend on how many rows travel with it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

_TOP_EXPONENT = 14
"""Binary exponent that the largest weight is brought to; float16 ends below 2**16."""

_LOST_AT_MOST = 2.0**-25
"""Half the step of float16's smallest numbers: 2**-39 of the largest weight, less than float32
rounds off any sum that weight takes part in."""

_MOST_PADDING = 8


def is_half_available() -> bool:
    """Return whether this torch has FBGEMM's operators on this CPU."""
    return "fbgemm" in torch.backends.quantized.supported_engines and hasattr(
        torch.ops.quantized, "linear_prepack_fp16"
    )


def lossless_exponent(weight: Tensor) -> int | None:
    """Return ``k`` such that float16 holds ``weight * 2**k``, or None if there is none.

    Args:
        weight: float32.
    """
    largest = float(weight.abs().max())
    if largest == 0:
        return 0
    exponent = _TOP_EXPONENT - math.floor(math.log2(largest))
    scaled = weight * 2.0**exponent
    lost = (scaled.half().float() - scaled).abs_().max()
    return exponent if float(lost) <= _LOST_AT_MOST else None


class HalfLinear(nn.Module):
    """A linear layer without gradients over weights in float16.

    Args:
        weight: ``[out_features, in_features]``, float32 on CPU.
        bias: ``[out_features]`` or None.
        exponent: From ``lossless_exponent``.

    Attributes:
        scale: What ``unscaled`` results are to be multiplied by; a power of two.
        has_bias: Whether it has a bias.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, exponent: int) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.scale = 2.0**-exponent
        self.has_bias = bias is not None
        scaled_bias = None if bias is None else bias.detach() * 2.0**exponent
        self._packed = torch.ops.quantized.linear_prepack_fp16(
            weight.detach() * 2.0**exponent, scaled_bias
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return ``rows @ weight.T + bias``, ``[..., out_features]``."""
        return self.unscaled(rows).mul_(self.scale)

    def unscaled(self, rows: Tensor) -> Tensor:
        """Return the same over ``scale``, for callers that multiply by something anyway."""
        num_rows = rows.numel() // self.in_features
        missing = padded_rows(num_rows) - num_rows
        if missing:
            flat = pad(rows.reshape(-1, self.in_features), (0, 0, 0, missing))
            padded: Tensor = torch.ops.quantized.linear_dynamic_fp16(flat, self._packed)
            return padded[:num_rows].view(*rows.shape[:-1], self.out_features)
        result: Tensor = torch.ops.quantized.linear_dynamic_fp16(rows, self._packed)
        return result


@lru_cache(maxsize=65536)
def padded_rows(num_rows: int) -> int:
    """Return the smallest count from ``num_rows`` on whose rows are computed as others' are.

    Found by trying, once for each count: which counts they are depends on the CPU.
    """
    for count in range(num_rows, num_rows + _MOST_PADDING):
        if _is_invariant(count):
            return count
    return num_rows


@lru_cache(maxsize=65536)
def _is_invariant(num_rows: int) -> bool:
    packed, row, expected = _probe()
    result = torch.ops.quantized.linear_dynamic_fp16(row.expand(num_rows, -1), packed)
    return bool((result == expected).all())


@lru_cache(maxsize=1)
def _probe() -> tuple[object, Tensor, Tensor]:
    """Return a small packed weight, a row, and the row's result in a group of four."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 192, generator=generator).half().float()
    row = torch.randn(1, 192, generator=generator)
    packed = torch.ops.quantized.linear_prepack_fp16(weight, None)
    return packed, row, torch.ops.quantized.linear_dynamic_fp16(row.expand(4, -1), packed)[:1]
