from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import ArmCounts, CellKey
from policy_service.errors import StoreSchemaError
from policy_service.redis_pool.schema import (
    COUNTERS,
    Keys,
    increments,
    parse_cells,
    parse_counters,
    parse_integer,
    row_of,
    slug,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
COUNTS = st.builds(ArmCounts, *[st.integers(0, 2**50)] * len(COUNTERS))


@given(st.dictionaries(st.builds(CellKey, TEXT, TEXT, TEXT), COUNTS, max_size=5))
def test_batches_survive_the_journey(deltas: dict[CellKey, ArmCounts]) -> None:
    texts = increments(deltas)
    assert not any("\n" in text for text in texts), "lines are separated by them"
    assert parse_cells(texts) == {k: v for k, v in deltas.items() if v != ArmCounts()}


@given(COUNTS)
def test_counters_have_their_order(counts: ArmCounts) -> None:
    assert row_of(counts) == " ".join(str(getattr(counts, name)) for name in COUNTERS)
    assert parse_counters("c", row_of(counts)) == counts


@given(TEXT, TEXT)
def test_models_have_keys_of_their_own_in_one_slot(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) == (one == other)
    keys = Keys("p", one)
    names = [
        keys.schema,
        keys.generation,
        keys.old_epochs,
        keys.epochs(3),
        keys.counts(3, 600),
        keys.old_counts("600"),
        keys.seen("r{}", "i"),
    ]
    assert {name.split("{")[1].split("}")[0] for name in names} == {slug(one)} != {""}
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "texts", [("a/b", "1"), ("a/b/c/pulls", "1"), ("a/b/c", "x"), ("a/b/c", "1.5"), ("a/b/c", "")]
)
def test_foreign_fields_are_refused(texts: tuple[str, str]) -> None:
    with pytest.raises(StoreSchemaError):
        parse_cells(texts)


def test_counters_of_other_versions() -> None:
    assert parse_counters("c", "1 2 3") == ArmCounts(1, 2, 3), "an earlier one had fewer"
    assert parse_counters("c", "1 2 3 4 5 6 7 8 9") == ArmCounts(1, 2, 3, 4, 5, 6, 7, 8)


@pytest.mark.parametrize("text", ["-1", "", "1.5", "x"])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(StoreSchemaError, match="the key holds"):
        parse_integer("the key", text)
