"""What is kept of each open sequence: how it differs from its context, and tables for Ask.

Each sequence has a seat, a number; arrays are by seat and drafter, so that a step's sequences are
worked on together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_service.goodput.arrays import grown
from policy_service.goodput.cells import NUM_BUCKETS
from policy_service.goodput.contexts import ContextRates
from policy_service.goodput.effects import Effects
from policy_service.goodput.survival import depth_columns
from policy_service.goodput.tables import PRICES, draft_tables

SHARES_STRENGTH = 8.0
"""Drafts that the context's shares of score buckets are worth to a prompt."""
_RENEW_STEPS = 16
"""After so many steps all tables are made anew, for what was learnt fades."""
_TABLES_PER_STEP = 16
"""Most tables made anew in a step."""


Indices = NDArray[np.intp]


class Seats:
    """Arrays by seat.

    Attributes:
        chains: Rows of the contexts, own one first, ``[num_seats, 3]``.
        effects: ``[num_seats, num_drafters]``.
        surprises: Sums of how tokens surprised the context, and of what that was expected to be
            squared, ``[2, num_seats, num_drafters]``.
        seen: Faded counts of score buckets seen, ``[num_seats, num_drafters, NUM_BUCKETS + 1]``.
        tokens: As in ``tables``, ``[num_drafters, num_caps, num_prices, num_seats]``.
        rows: The same.
        rounds: Rounds so far.
        asked: Most tokens asked for in this step.
        bucket: Bucket of this step's draft.
        is_probe: Whether this step's arm is a probe.
    """

    def __init__(self, rates: ContextRates, caps: Sequence[int]) -> None:
        """Start without seats and drafters."""
        self._rates = rates
        self._caps = np.array(caps)
        self._columns = depth_columns(max(caps))
        self._free: list[int] = []
        self._age = np.zeros(0, np.int64)
        self._stale = np.zeros((0, 0), np.bool_)
        self._turn = 0
        self._num_steps = 0
        self.chains = np.zeros((0, 3), np.intp)
        self.rounds = np.zeros(0, np.int64)
        self.asked = np.zeros(0, np.int64)
        self.bucket = np.zeros(0, np.intp)
        self.is_probe = np.zeros(0, np.bool_)
        self.effects = Effects.zeros((0, 0))
        self.surprises = np.zeros((2, 0, 0), np.float32)
        self.seen = np.zeros((0, 0, NUM_BUCKETS + 1), np.float32)
        self.tokens = np.zeros((0, len(caps), len(PRICES), 0), np.float32)
        self.rows = np.zeros_like(self.tokens)

    def open(self, chain: Sequence[int]) -> int:
        """Return a seat for a new sequence of a context."""
        if not self._free:
            self.resize(max(64, 2 * len(self._age)), len(self.tokens))
        seat = self._free.pop()
        self.chains[seat] = chain
        self.effects.fields[:, seat] = 0
        self.surprises[:, seat] = 0
        self.seen[seat] = 0
        self.rounds[seat] = 0
        self.is_probe[seat] = False
        self._copy_tables(np.array([seat]))
        return seat

    def close(self, seat: int) -> None:
        """Give a seat to whoever comes next."""
        self._free.append(seat)

    def resize(self, num_seats: int, num_drafters: int) -> None:
        """Make room, keeping what there is."""
        old = len(self._age)
        for name in ("_age", "chains", "rounds", "asked", "bucket", "is_probe"):
            setattr(self, name, grown(getattr(self, name), num_seats))
        for name in ("_stale", "seen"):
            setattr(self, name, grown(getattr(self, name), num_seats, num_drafters))
        for name in ("tokens", "rows"):
            setattr(self, name, grown(getattr(self, name), num_drafters, 0, 0, num_seats))
        self.effects = Effects(grown(self.effects.fields, 4, num_seats, num_drafters))
        self.surprises = grown(self.surprises, 2, num_seats, num_drafters)
        self._free.extend(range(old, len(self._age)))

    def forget_drafter(self, drafter: int) -> None:
        """Forget what was learnt of a drafter, which is another one now."""
        self.effects.fields[:, :, drafter] = 0
        self.surprises[:, :, drafter] = 0
        self.seen[:, drafter] = 0
        self._stale[:, drafter] = True

    def touch(self, seats: Indices, drafters: Indices) -> None:
        """Say of which drafters something was learnt."""
        self._stale[seats, drafters] = True

    def refresh(self, seats: Indices) -> None:
        """Make tables anew that are not up to date, as many as a step has time for.

        The others follow in turn; until then Ask goes by what was known some steps ago.
        """
        changed = seats[self._age[seats] != self._rates.age[self.chains[seats, 0]]]
        if len(changed):
            self._copy_tables(changed)
        self._num_steps += 1
        if self._num_steps % _RENEW_STEPS == 0:
            self._stale[seats] |= self.seen[seats].any(axis=2)
        places, drafters = np.nonzero(self._stale[seats])
        if len(places) > _TABLES_PER_STEP:
            self._turn = (self._turn + _TABLES_PER_STEP) % len(places)
            chosen = (self._turn + np.arange(_TABLES_PER_STEP)) % len(places)
            places, drafters = places[chosen], drafters[chosen]
        if len(places):
            self._make_tables(seats[places], drafters)

    def _make_tables(self, seats: Indices, drafters: Indices) -> None:
        contexts = self.chains[seats, 0]
        seen = self.seen[seats, drafters]
        shares = seen + np.float32(SHARES_STRENGTH) * self._rates.shares[contexts, drafters]
        shares /= seen.sum(axis=1, keepdims=True) + np.float32(SHARES_STRENGTH)
        tokens, rows = draft_tables(
            self._rates.logits[contexts, drafters][:, :, self._columns],
            self.effects.shift[seats, drafters],
            shares,
            self._rates.lengths[contexts, drafters],
            self._caps,
        )
        self.tokens[drafters, :, :, seats], self.rows[drafters, :, :, seats] = tokens, rows
        self._stale[seats, drafters] = False

    def _copy_tables(self, seats: Indices) -> None:
        """Take the tables of the context, where the prompt is not known to differ from it."""
        places, drafters = np.nonzero(self.seen[seats].sum(axis=2) == 0.0)
        like, rows = seats[places], self.chains[seats[places], 0]
        self.tokens[drafters, :, :, like] = self._rates.tokens[rows, drafters]
        self.rows[drafters, :, :, like] = self._rates.rows[rows, drafters]
        self._stale[seats] = True
        self._stale[like, drafters] = False
        self._age[seats] = self._rates.age[self.chains[seats, 0]]
