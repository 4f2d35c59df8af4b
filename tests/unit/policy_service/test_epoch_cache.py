from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import ArmCounts, CellKey
from policy_service.epoch_cache import MAX_PENDING, EpochCache

KEY = CellKey("global", "none")
ONE = ArmCounts(pulls=1)


@given(st.integers(0, 12), st.randoms(use_true_random=False))
def test_changes_may_be_told_in_any_order(num_changes: int, rng: random.Random) -> None:
    names = ["", *(f"r{n}" for n in range(num_changes))]
    changes = list(pairwise(names))
    rng.shuffle(changes)
    cache = EpochCache()
    for before, after in changes:
        cache.add(before, after, {KEY: ONE})
    assert cache.revision == names[-1]
    assert cache.cells() == ({KEY: ArmCounts(pulls=num_changes)} if num_changes else {})
    assert all(cache.has(name) for name in names)


def test_a_change_that_was_read_is_not_added_again() -> None:
    cache = EpochCache()
    cache.load("r2", {KEY: ArmCounts(pulls=2)})
    cache.add("r1", "r2", {KEY: ONE})
    cache.add("r2", "r3", {KEY: ONE})
    assert cache.cells() == {KEY: ArmCounts(pulls=3)}
    assert not cache.has("r1")


def test_a_change_of_another_writer_is_noticed_and_read() -> None:
    cache = EpochCache()
    cache.add("", "r1", {KEY: ONE})
    cache.add("r2", "r3", {KEY: ONE})
    assert not cache.has("r3")
    cache.load("r2", {KEY: ArmCounts(pulls=2)})
    assert cache.has("r3")
    assert cache.cells() == {KEY: ArmCounts(pulls=3)}


def test_what_was_shown_is_not_changed_and_shown_again_if_nothing_happened() -> None:
    cache = EpochCache()
    cache.add("", "r1", {KEY: ONE})
    shown = cache.cells()
    assert cache.cells() is shown
    cache.add("r1", "r2", {KEY: ONE})
    assert shown == {KEY: ONE}
    assert cache.cells() is not shown


def test_memory_is_bounded() -> None:
    cache = EpochCache()
    for n in range(3 * MAX_PENDING):
        cache.add(f"x{n}", f"y{n}", {KEY: ONE})
        cache.add(cache.revision, f"z{n}", {KEY: ONE})
    assert len(cache._pending) <= MAX_PENDING
    assert len(cache._passed) <= MAX_PENDING
