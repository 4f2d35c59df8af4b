from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.step_times import StepTimes
from replicas.engine.step_time import StepTimeModel


def test_it_interpolates_and_goes_on_in_proportion() -> None:
    model = StepTimeModel({1: 10.0, 2: 12.0, 4: 20.0})
    assert [model.predict_ms(rows) for rows in (1, 2, 3, 4, 8)] == [10, 12, 16, 20, 40]


def test_more_rows_never_take_less_time() -> None:
    model = StepTimeModel({1: 10.0, 2: 8.0, 4: 20.0})
    assert model.table() == {1: 10.0, 2: 10.0, 4: 20.0}


def test_it_follows_what_is_measured() -> None:
    model = StepTimeModel({1: 10.0, 8: 20.0})
    for _ in range(200):
        model.observe(8, 1, 0, 40.0)
        model.observe(1, 1, 0, 12.0)
    assert model.predict_ms(8) == pytest.approx(40, rel=0.01)
    assert model.predict_ms(1) == pytest.approx(12, rel=0.01)


def test_it_learns_what_sequences_and_cached_tokens_add() -> None:
    model = StepTimeModel({1: 5.0, 8: 5.0, 64: 5.0}, sequence_ms=0.1, cached_token_ms=1e-4)
    truth = StepTimes((1, 8, 64), (10.0, 12.0, 30.0), 0.5, 2e-3)
    rng = random.Random(0)
    for _ in range(4000):
        sequences = rng.randrange(1, 9)
        shape = (sequences * rng.choice([1, 3, 8]), sequences, sequences * rng.randrange(2000))
        model.observe(*shape, truth.predict_ms(*shape))
    for shape in [(1, 1, 0), (8, 8, 0), (8, 1, 1000), (64, 8, 16000)]:
        assert model.predict_ms(*shape) == pytest.approx(truth.predict_ms(*shape), rel=0.15)


def test_a_step_that_stood_still_says_little() -> None:
    model = StepTimeModel({1: 10.0})
    model.observe(1, 1, 0, 60_000.0)
    assert model.predict_ms(1) <= 13


def test_it_needs_something_to_start_from() -> None:
    with pytest.raises(ValueError, match="positive"):
        StepTimeModel({})
    with pytest.raises(ValueError, match="positive"):
        StepTimeModel({1: 0.0})


@given(
    st.dictionaries(st.integers(1, 128), st.floats(0.1, 1000), min_size=1),
    st.lists(st.tuples(st.integers(1, 300), st.floats(0.1, 1000)), max_size=30),
)
def test_it_stays_monotone_and_positive(
    seed: dict[int, float], steps: list[tuple[int, float]]
) -> None:
    model = StepTimeModel(seed)
    for rows, forward_ms in steps:
        model.observe(rows, 1 + rows % 3, 7 * rows, forward_ms)
    predicted = [model.predict_ms(rows) for rows in range(1, 300)]
    assert predicted[0] > 0
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(predicted))
