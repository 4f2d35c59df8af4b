from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        model.observe(8, 40.0)
        model.observe(1, 12.0)
    assert model.predict_ms(8) == pytest.approx(40, rel=0.01)
    assert model.predict_ms(1) == pytest.approx(12, rel=0.01)


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
        model.observe(rows, forward_ms)
    predicted = [model.predict_ms(rows) for rows in range(1, 300)]
    assert predicted[0] > 0
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(predicted))
