"""One token text and the links between equal n-grams in it. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

GRAMS = (1, 2, 4, 8, 16, 32)
"""Lengths of the n-grams that occurrences are listed by; each level has twice the one below."""

NOWHERE = -1
"""In place of a place: there is none."""

NUMBER_SHIFT = 32
START_MASK = (1 << NUMBER_SHIFT) - 1


class Text:
    """A text that grows at its end, and what is entered of it.

    An n-gram's *place* is the index of the token that follows it (``START_MASK``) with the text's
    number above it (``NUMBER_SHIFT``): of two places the greater is the more recent one.

    Args:
        number: Higher than that of every older text.
        num_levels: How many of ``GRAMS`` are used.

    Attributes:
        token_ids: The tokens.
        first_place: Place of index 0.
        before: For each level, for each place, the place of the n-gram's previous occurrence.
        levels: For each place, in how many levels it is entered.
    """

    __slots__ = ("before", "first_place", "levels", "token_ids")

    def __init__(self, number: int, num_levels: int) -> None:
        self.token_ids: list[int] = []
        self.first_place = number << NUMBER_SHIFT
        self.before = tuple(array("q") for _ in range(num_levels))
        self.levels = bytearray()

    def append(self, token_ids: Sequence[int]) -> None:
        """Append tokens, entered nowhere yet."""
        self.token_ids.extend(token_ids)
        self.levels.extend(bytes(len(token_ids)))
        nowhere = array("q", (NOWHERE,)) * len(token_ids)
        for links in self.before:
            links.extend(nowhere)
