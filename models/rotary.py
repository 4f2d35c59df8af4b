"""Rotary embeddings whose frequencies depend on the length of what is computed.

LongRoPE (arXiv 2402.13753) has two sets of frequencies, for contexts within the original length and
beyond it; transformers picks one by the longest position of a forward. In a step of many sequences
one long sequence would change all others, so the set is fixed once, by the longest context served.
"""

from __future__ import annotations

from typing import Any

import torch


def fix_longrope(model: Any, max_context: int) -> bool:
    """Fix LongRoPE's frequencies to those for ``max_context`` tokens, in place.

    Returns:
        Whether the model has any.
    """
    fixed = False
    for module in model.modules():
        if getattr(module, "rope_type", None) == "longrope":
            probe = torch.zeros(1, 1, 1, device=model.device, dtype=model.dtype)
            # Computing the longest position leaves its frequencies in the module...
            module(probe, torch.tensor([[max_context - 1]], device=model.device))
            # ...and what is not called longrope leaves them alone.
            module.rope_type = "default"
            fixed = True
    return fixed
