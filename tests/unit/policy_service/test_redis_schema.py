from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.errors import StoreSchemaError
from policy_service.redis_schema import Keys, increments, parse_counts, slug

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
COUNTS = st.builds(ArmCounts, *[st.integers(0, 2**50)] * 7)


@given(st.dictionaries(st.builds(CellKey, TEXT, TEXT, TEXT), COUNTS, max_size=5))
def test_batches_survive_the_journey(deltas: dict[CellKey, ArmCounts]) -> None:
    texts = increments(OutcomeBatch("r", "i", 1, 0, "m", deltas))
    values = dict(zip(texts[::2], texts[1::2], strict=True))
    assert len(values) == len(texts) / 2
    expected = {key: counts for key, counts in deltas.items() if counts != ArmCounts()}
    assert parse_counts(values) == expected


@given(TEXT, TEXT)
def test_models_have_keys_of_their_own_in_one_slot(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) == (one == other)
    keys = Keys("p", one)
    names = [keys.schema, keys.epochs, keys.counts(600), keys.seen("r{}", "i")]
    assert {name.split("{")[1].split("}")[0] for name in names} == {slug(one)} != {""}


@pytest.mark.parametrize(
    "values", [{"a/b/c": "1"}, {"a/b/c/pulls": "x"}, {"a/b/c/pulls": "1.5"}, {"": "1"}]
)
def test_foreign_fields_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(StoreSchemaError):
        parse_counts(values)


def test_counters_of_later_versions_are_left_out() -> None:
    cells = parse_counts({"a/b/c/pulls": "1", "a/b/c/of_the_future": "5"})
    assert cells == {CellKey("a", "b", "c"): ArmCounts(pulls=1)}
