"""Trim is exact, and what it keeps are drafts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.goodput.survival import chain_survival, tree_survival
from policy_service.goodput.trim import trim_step
from policy_service.step_times import StepLoad, StepTimes

CHAIN = st.lists(st.floats(0.0, 1.0, width=32), max_size=4)
TIMES = st.lists(st.floats(0.1, 50.0), min_size=3, max_size=3).map(sorted)


def best_by_brute_force(
    survival: list[list[float]], tokens: float, load: StepLoad
) -> tuple[float, set[tuple[int, ...]]]:
    """Return the highest rate of all ways to cut the drafts, and the ways that reach it."""
    rates = {}
    for cuts in itertools.product(*(range(len(chain) + 1) for chain in survival)):
        gained = sum(sum(chain[:cut]) for chain, cut in zip(survival, cuts, strict=True))
        rates[cuts] = (tokens + gained) / float(load.time_of(np.array([sum(cuts)]))[0])
    highest = max(rates.values())
    return highest, {cuts for cuts, rate in rates.items() if rate >= highest * (1 - 1e-9)}


@given(chains=st.lists(CHAIN, min_size=1, max_size=4), ms=TIMES, prefill=st.integers(0, 40))
def test_as_good_as_the_best_of_all_ways_to_cut(
    chains: list[list[float]], ms: list[float], prefill: int
) -> None:
    survival = [np.cumprod(np.array(chain, np.float32)).tolist() for chain in chains]
    load = StepLoad(len(chains), StepTimes((1, 4, 9), tuple(ms)), prefill_rows=prefill)
    longest = max(1, max(map(len, survival)))
    table = np.zeros((len(survival), longest), np.float32)
    for row, chain in zip(table, survival, strict=True):
        row[: len(chain)] = chain
    lengths = np.array([len(chain) for chain in survival])
    kept = trim_step(table, lengths, len(chains), load.time_of)
    highest, _ = best_by_brute_force(survival, len(chains), load)
    assert (kept <= lengths).all()
    gained = sum(sum(chain[:cut]) for chain, cut in zip(survival, kept, strict=True))
    rate = (len(chains) + gained) / float(load.time_of(np.array([kept.sum()]))[0])
    assert rate == pytest.approx(highest, rel=1e-5)


def test_not_fooled_by_a_time_that_is_worse_in_the_middle() -> None:
    """A dear second row, and then many for nothing: a search uphill would stop before it."""
    survival = np.array([[0.9, 0.9, 0.9, 0.9]], np.float32)
    times = StepTimes((1, 2, 5), (10.0, 19.0, 20.0))
    lengths = np.array([4])
    load = StepLoad(1, times)
    assert trim_step(survival[:, :1], np.array([1]), 1, load.time_of).tolist() == [0]
    assert trim_step(survival, lengths, 1, load.time_of).tolist() == [4]


def test_free_rows_are_taken_and_useless_ones_are_not() -> None:
    survival = np.array([[0.5, 0.0], [0.4, 0.3]], np.float32)
    flat = StepLoad(2, StepTimes((1, 64), (10.0, 10.0)))
    assert trim_step(survival, np.array([2, 2]), 2, flat.time_of).tolist() == [1, 2]


@given(st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=16), st.floats(-6, 6, width=32))
def test_survival_never_grows_along_a_chain(logits: list[float], shift: float) -> None:
    survival = chain_survival(np.array([logits], np.float32), np.array([shift], np.float32))[0]
    assert (np.diff(survival) <= 0).all()
    assert 0 <= survival[-1] <= survival[0] <= 1


@given(st.data())
def test_survival_never_grows_along_the_list_of_a_tree(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    parents = tuple(data.draw(st.integers(-1, node - 1)) for node in range(size))
    acceptance = data.draw(st.lists(st.floats(0, 1), min_size=20, max_size=20))
    survival = tree_survival(parents, acceptance)
    assert all(after <= before for before, after in itertools.pairwise(survival))
    assert all(survival[n] <= survival[p] for n, p in enumerate(parents) if p >= 0)


def test_a_sibling_goes_by_its_rank() -> None:
    acceptance = [0.0] * 20
    acceptance[1], acceptance[2], acceptance[17] = 0.8, 0.5, 0.1
    assert tree_survival((-1, 0, -1), acceptance) == pytest.approx([0.8, 0.4, 0.1])
