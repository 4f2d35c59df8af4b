from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.shares import LEAST_PULLS, capped_weights

PULLS = st.lists(st.floats(0, 1e6), min_size=1, max_size=12)


@given(PULLS, st.floats(0.05, 1))
def test_nobody_weighs_more_than_the_share_and_all_weigh_what_they_did(
    pulls: list[float], share: float
) -> None:
    weights = [f * p for f, p in zip(capped_weights(pulls, share), pulls, strict=True)]
    total = sum(pulls)
    assert sum(weights) == pytest.approx(total)
    least = sum(min(p, LEAST_PULLS) for p in pulls)
    if least:
        assert max(weights) <= max(share, LEAST_PULLS / least) * total * (1 + 1e-9)


@given(PULLS, st.floats(0.05, 1))
def test_the_order_is_kept(pulls: list[float], share: float) -> None:
    weights = [f * p for f, p in zip(capped_weights(pulls, share), pulls, strict=True)]
    ranked = [weight for _, weight in sorted(zip(pulls, weights, strict=True))]
    assert all(b >= a - 1e-6 * abs(a) for a, b in pairwise(ranked))


def test_one_alone_has_all() -> None:
    assert capped_weights([1e6], 0.1) == [pytest.approx(1.0)]


def test_few_pulls_are_never_cut() -> None:
    assert capped_weights([LEAST_PULLS, 1, 1], 0.1) == [1, 1, 1]


def test_a_beginner_is_not_made_large_where_few_play() -> None:
    weights = [f * p for f, p in zip(capped_weights([1000, 1], 0.25), (1000, 1), strict=True)]
    assert weights[1] / sum(weights) < 0.02
