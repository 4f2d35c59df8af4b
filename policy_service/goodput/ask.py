"""Ask: which drafters to call in a step, and for which sequences up to what length. Pure.

A step waits for the slowest drafter that it calls, so with drafters sorted by their measured waits
the sets worth trying are those of all drafters up to some wait: any other set waits as long as one
of them and can do less. For each such set and price of a row, every sequence takes the arm
whose tokens are most, less the price of its rows and of the time that drafting takes longer for it.
Of all sets and prices the one is chosen at which ``tokens / (time of the rows + wait + drafting)``
is most. For a given set the price plays the part of a Lagrange multiplier (Dinkelbach's parametric
search, on a grid); time is priced at what it was worth in the steps before. Drafters are taken to
draft one after the other once they have begun, which is never too short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_service.goodput.rates import Floats
from policy_service.goodput.tables import PRICES
from policy_service.step_times import TimeOf

_LEAST_GAIN = np.float32(1e-3)
"""A slower or longer arm is taken only if it is better by so many tokens."""


@dataclass(frozen=True, slots=True)
class Offers:
    """What there is to choose from.

    Attributes:
        tokens: Accepted tokens that an arm brings,
            ``[num_drafters, num_caps, num_prices, num_sequences]``.
        rows: Rows that it verifies for them, the same.
        allowed: Which arms each sequence may take, ``[num_drafters, num_caps, num_sequences]``;
            None for all.
        waits: Milliseconds that each drafter is waited for in any case, ``[num_drafters]``.
        drafting: Milliseconds more for each sequence, by length, ``[num_drafters, num_caps]``.
        rate: Tokens that a millisecond is worth.
    """

    tokens: Floats
    rows: Floats
    allowed: NDArray[np.bool_] | None
    waits: NDArray[np.float64]
    drafting: Floats
    rate: float

    def values(self) -> Floats:
        """Return tokens less the price of rows and drafting, for every price."""
        values = self.tokens - PRICES[:, None] * self.rows
        values -= (np.float32(self.rate) * self.drafting)[..., None, None]
        if self.allowed is not None:
            values = np.where(self.allowed[:, :, None], values, np.float32(-np.inf))
        return values


@dataclass(frozen=True, slots=True)
class Plan:
    """What Ask found.

    Attributes:
        arms: Number of each sequence's arm, drafter times number of lengths plus length; -1 for
            plain decoding, ``[num_sequences]``.
        values: Tokens that each arm brings less the price of its rows and drafting,
            ``[num_sequences, num_arms]``; minus infinity where it is not allowed.
        price: Tokens that a row must bring.
        wait_ms: How long the step will wait for drafters.
        tokens: What the step is expected to emit.
        time_ms: How long it is expected to take.
    """

    arms: NDArray[np.intp]
    values: Floats
    price: float
    wait_ms: float
    tokens: float
    time_ms: float


def ask_step(offers: Offers, base_tokens: float, time_of: TimeOf) -> Plan:
    """Choose every sequence's arm.

    Args:
        offers: The arms.
        base_tokens: What the step emits without drafts.
        time_of: Milliseconds of a step that verifies so many drafted rows, without waits.
    """
    values = offers.values()
    order = np.argsort(offers.waits, kind="stable")
    arms = _best_arms(values, order)
    tokens, rows, drafting_ms = _sums(offers, arms)
    waits = offers.waits[order][:, None] * (rows > 0) + drafting_ms
    times = time_of(rows) + waits
    rates = (base_tokens + tokens) / times
    plain_ms, more_ms = time_of(np.arange(2)).tolist()
    if not rates.size or rates.max() <= base_tokens / plain_ms:
        price = int(np.argmin(abs(PRICES - base_tokens / plain_ms * (more_ms - plain_ms))))
        nobody = np.full(values.shape[-1], -1, np.intp)
        return Plan(
            nobody, _of_price(values, price), float(PRICES[price]), 0.0, base_tokens, plain_ms
        )
    until, price = (int(place) for place in np.unravel_index(np.argmax(rates), rates.shape))
    return Plan(
        arms[until, price],
        _of_price(values, price),
        float(PRICES[price]),
        float(waits[until, price]),
        float(base_tokens + tokens[until, price]),
        float(times[until, price]),
    )


def _of_price(values: Floats, price: int) -> Floats:
    """Return the values at one price, ``[num_sequences, num_arms]``."""
    return values[:, :, price].reshape(-1, values.shape[-1]).T


def _best_arms(values: Floats, order: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the best arms among the first drafters in ``order``, for every number of them.

    Returns:
        Numbers of arms, -1 where none is worth it, ``[num_sets, num_prices, num_sequences]``.
    """
    num_drafters, num_caps, *shape = values.shape
    value = values[:, 0]
    arms = np.zeros((num_drafters, *shape), np.intp)
    for cap in range(1, num_caps):
        better = values[:, cap] > value + _LEAST_GAIN
        value = np.where(better, values[:, cap], value)
        arms = np.where(better, cap, arms)
    arms += np.arange(0, num_drafters * num_caps, num_caps)[:, None, None]
    best = np.zeros(shape, np.float32)
    chosen = np.full(shape, -1, np.intp)
    sets = np.empty_like(arms)
    for place, drafter in enumerate(order.tolist()):
        better = value[drafter] > best + _LEAST_GAIN
        best = np.where(better, value[drafter], best)
        chosen = np.where(better, arms[drafter], chosen)
        sets[place] = chosen
    return sets


def _sums(offers: Offers, arms: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return what arms amount to over all sequences: tokens, rows, milliseconds of drafting.

    Args:
        offers: What they bring.
        arms: As from ``_best_arms``.

    Returns:
        ``[3, num_sets, num_prices]``.
    """
    _, num_prices, num = arms.shape
    places = (arms * num_prices + np.arange(num_prices)[:, None]) * num + np.arange(num)
    nobody = arms < 0
    places[nobody] = 0
    drafting = offers.drafting.ravel()
    amounts = offers.tokens.ravel()[places], offers.rows.ravel()[places], drafting[arms]
    sums = np.empty((3, *arms.shape[:2]))
    for total, amount in zip(sums, amounts, strict=True):
        amount[nobody] = 0.0
        amount.sum(axis=2, out=total)
    return sums
