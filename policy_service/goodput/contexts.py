"""Rates and draft tables of the contexts in use, made anew as evidence comes in.

Making them anew takes a fraction of a millisecond, so it is done for few contexts a step, and for
one only when its evidence has grown by a tenth or the pool's has changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policy_service.goodput.arrays import grown
from policy_service.goodput.cells import NUM_BUCKETS, NUM_COLUMNS
from policy_service.goodput.evidence import Evidence
from policy_service.goodput.rates import shrunk_rates
from policy_service.goodput.survival import depth_columns
from policy_service.goodput.tables import PRICES, draft_tables

_GROWTH = 0.1
_FEWEST_TOKENS = 16


class ContextRates:
    """What is expected of drafts in each context, by row of the evidence.

    Attributes:
        logits: ``[num_rows, num_drafters, NUM_BUCKETS, NUM_COLUMNS]``.
        shares: ``[num_rows, num_drafters, NUM_BUCKETS + 1]``.
        lengths: ``[num_rows, num_drafters, NUM_BUCKETS]``.
        tokens: Of a prompt like its context, ``[num_rows, num_drafters, num_caps, num_prices]``.
        rows: The same.
        drafts: How many drafts of each drafter are known of, wherever, ``[num_drafters]``.
        age: Grows whenever a row is made anew, ``[num_rows]``.
    """

    def __init__(self, evidence: Evidence, caps: Sequence[int], strength: float) -> None:
        self._evidence = evidence
        self._caps = np.array(caps)
        self._columns = depth_columns(max(caps))
        self._strength = strength
        self._made: dict[int, tuple[str, int]] = {}
        self._chains: dict[int, tuple[int, ...]] = {}
        self._known = np.zeros(0)
        self._version = evidence.version
        self.drafts = np.zeros(0)
        self.age = np.zeros(0, np.int64)
        self.logits = np.zeros((0, 0, NUM_BUCKETS, NUM_COLUMNS), np.float32)
        self.shares = np.zeros((0, 0, NUM_BUCKETS + 1), np.float32)
        self.lengths = np.zeros((0, 0, NUM_BUCKETS), np.float32)
        self.tokens = np.zeros((0, 0, len(caps), len(PRICES)), np.float32)
        self.rows = np.zeros_like(self.tokens)

    def open(self, context: str, chain: tuple[int, ...]) -> None:
        """Have the rates of a context; ``chain`` has its row, its parent's and so on."""
        made = (context, self._evidence.version)
        if self._made.get(chain[0]) != made:  # a row may be another context's than it was
            self._chains[chain[0]] = chain
            self._make(chain[0])
            self._made[chain[0]] = made

    def grow(self, num_drafters: int) -> None:
        """Make room for further drafters and make all rates anew."""
        self._allocate(len(self.age), num_drafters)
        self.renew()

    def renew(self) -> None:
        """Make all rates anew."""
        for row in self._chains:
            self._make(row)

    def refresh(self) -> None:
        """Make anew the rates of the context with most news, if they are worth it."""
        news = self._evidence.news
        if self._version != self._evidence.version:
            self._version = self._evidence.version
            news[[row for row in self._chains if self._evidence.is_used(row)]] = np.inf
        growth = news[: len(self._known)] / (_FEWEST_TOKENS + _GROWTH * self._known)
        if len(growth) and growth.max() > 1.0:
            self._make(int(np.argmax(growth)))

    def _make(self, row: int) -> None:
        if row >= len(self.age):
            self._allocate(max(8, 2 * row), self.logits.shape[1])
        levels = self._evidence.levels(self._chains[row])
        rates = shrunk_rates(levels, self._strength)
        self.logits[row], self.shares[row] = rates.logits, rates.shares
        self.lengths[row] = rates.lengths
        self.tokens[row], self.rows[row] = draft_tables(
            rates.logits[:, :, self._columns],
            np.zeros(len(rates.logits), np.float32),
            rates.shares,
            rates.lengths,
            self._caps,
        )
        self.drafts = levels[0][:, :, 0, 0].sum(axis=1)
        self.age[row] += 1
        self._evidence.news[row] = 0.0
        self._known[row] = float(levels[-1][:, :NUM_BUCKETS, 1:, 0].sum())

    def _allocate(self, num_rows: int, num_drafters: int) -> None:
        """Make room, keeping what there is."""
        self.age, self._known = grown(self.age, num_rows), grown(self._known, num_rows)
        for name in ("logits", "shares", "lengths", "tokens", "rows"):
            setattr(self, name, grown(getattr(self, name), num_rows, num_drafters))
