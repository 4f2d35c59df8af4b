"""Keyed Gumbel noise: the same draw for the same request, position and token, everywhere.

The target's token at a position is the argmax of (processed logit / temperature + noise) over the
vocabulary, which is a draw from the softmax (Gumbel-max). The noise is a counter-based hash of
(seed, choice index, absolute position, token id): it needs no state, is the same on every replica,
and neither drafts nor batch shapes touch it, so speculation cannot change a sampled reply.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def _mix(value: int) -> int:
    """Finish a splitmix64 hash (Steele, Lea and Flood 2014) of one 64-bit word."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def noise_key(seed: int, choice_index: int, position: int) -> int:
    """Return the 64-bit key of one position's noise."""
    key = 0
    for word in (seed, choice_index, position):
        key = _mix(key + _GOLDEN + (word & _MASK))
    return key


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Shift 64-bit words right without their sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def uniform_noise(key: int, token_ids: Tensor) -> Tensor:
    """Return a uniform number in (0, 1) for each token id, float32 with its tail near 0 intact.

    Args:
        key: From ``noise_key``.
        token_ids: int64, any shape.
    """
    # Wrapping int64 arithmetic gives the bits of unsigned arithmetic on every device.
    words = (token_ids + 1) * _signed(_GOLDEN) + _signed(key)
    words = (words ^ _shifted(words, 30)) * _signed(_MIX_1)
    words = (words ^ _shifted(words, 27)) * _signed(_MIX_2)
    words = words ^ _shifted(words, 31)
    return (_shifted(words, 11).float() + 0.5) * 2.0**-53


def gumbel_noise(key: int, token_ids: Tensor) -> Tensor:
    """Return standard Gumbel noise for each token id, float32, independent for different keys.

    ``-log(E)`` with ``E = -log(1 - u)`` exponential: small ``u`` makes the large values, and
    float32 keeps them apart down to probabilities of 2**-53.
    """
    exponential = -torch.log1p(-uniform_noise(key, token_ids))
    return -torch.log(exponential)
