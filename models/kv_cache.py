"""Keys and values of all sequences of a Verifier, in pages, one pair of tensors a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from models.pages import PageTable


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Shape of one layer's keys and values.

    Attributes:
        num_kv_heads: Heads of keys and values.
        key_dim: Length of a key.
        value_dim: Length of a value.
    """

    num_kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def numbers_per_token(self) -> int:
        """Numbers that one token takes in this layer."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


class KVCache:
    """Tensors ``[num_slots, num_kv_heads, dim]`` for every layer; hidden states where wanted.

    Token ``i`` of a page lies in slot ``page * page_tokens + i``.

    Args:
        shapes: One per layer.
        num_pages: Pages.
        page_tokens: Tokens in a page.
        dtype: Number format.
        device: Where they lie.
        hidden_size: Length of the hidden state to keep of each token; 0 keeps none.

    Attributes:
        hidden: Last hidden states, after the final norm, ``[num_slots, hidden_size]``, or None.
    """

    def __init__(
        self,
        shapes: Sequence[LayerShape],
        num_pages: int,
        page_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
        hidden_size: int = 0,
    ) -> None:
        self.page_tokens = page_tokens
        num_slots = num_pages * page_tokens
        # Not zeroed: untouched pages then take no memory, and no row is read before it is written.
        self.keys = [
            torch.empty(num_slots, shape.num_kv_heads, shape.key_dim, dtype=dtype, device=device)
            for shape in shapes
        ]
        self.values = [
            torch.empty(num_slots, shape.num_kv_heads, shape.value_dim, dtype=dtype, device=device)
            for shape in shapes
        ]
        self.hidden = (
            torch.empty(num_slots, hidden_size, dtype=dtype, device=device) if hidden_size else None
        )

    def slots(self, table: PageTable, num_tokens: int) -> list[int]:
        """Return the slots of a sequence's first ``num_tokens`` tokens."""
        size = self.page_tokens
        slots: list[int] = []
        for page in table.pages[: -(-num_tokens // size)]:
            slots.extend(range(page * size, (page + 1) * size))
        return slots[:num_tokens]

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy rows from slots to slots in every layer; all are read before any is written."""
        device = self.keys[0].device
        source = torch.tensor(sources, device=device)
        target = torch.tensor(targets, device=device)
        kept = () if self.hidden is None else (self.hidden,)
        for tensor in (*self.keys, *self.values, *kept):
            tensor[target] = tensor[source]


def bytes_per_token(shapes: Sequence[LayerShape], dtype: torch.dtype, hidden_size: int = 0) -> int:
    """Return the bytes that one token takes in all layers, its hidden state included."""
    return (sum(shape.numbers_per_token for shape in shapes) + hidden_size) * dtype.itemsize
