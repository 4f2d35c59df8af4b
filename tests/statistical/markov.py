"""Languages in which the next token depends on the last one only, so that all can be summed up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

Number = TypeVar("Number", float, Fraction)

Row = Sequence[float]
Table = Sequence[Row]
"""Probability of each next token, by last token."""

FIRST = 0
"""The token before the first: the end of the prompt."""

LENGTH = 4
"""Tokens of a generation: with drafts of three, more than one round."""

TARGET: Table = (
    (0.40, 0.30, 0.20, 0.10),
    (0.10, 0.15, 0.25, 0.50),
    (0.05, 0.60, 0.30, 0.05),
    (0.35, 0.05, 0.25, 0.35),
)

DRAFTER: Table = (
    (0.25, 0.25, 0.25, 0.25),
    (0.30, 0.10, 0.10, 0.50),
    (0.10, 0.30, 0.50, 0.10),
    (0.60, 0.20, 0.10, 0.10),
)


def joint_law(
    table: Sequence[Sequence[Number]], length: int, one: Number
) -> dict[tuple[int, ...], Number]:
    """Return the probability of every text of a length."""
    law = {}
    for text in itertools.product(range(len(table)), repeat=length):
        probability, last = one, FIRST
        for token in text:
            probability = probability * table[last][token]
            last = token
        law[text] = probability
    return law


def controlled(table: Table, temperature: float, top_p: float, min_p: float) -> Table:
    """Return a table with temperature, then top-p, then min-p, written down plainly."""
    return [_controlled(row, temperature, top_p, min_p) for row in table]


def _controlled(row: Row, temperature: float, top_p: float, min_p: float) -> Row:
    weights = [probability ** (1 / temperature) for probability in row]
    row = [weight / sum(weights) for weight in weights]
    kept: Mapping[int, float] = {}
    for token in sorted(range(len(row)), key=lambda token: -row[token]):
        if sum(kept.values()) < top_p and row[token] >= min_p * max(row):
            kept = {**kept, token: row[token]}
    return [kept.get(token, 0.0) / sum(kept.values()) for token in range(len(row))]


def log_row(row: Row) -> list[float]:
    """Return logits of which a row is the softmax."""
    return [math.log(probability) if probability else float("-inf") for probability in row]
