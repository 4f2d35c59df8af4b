"""When a drafter without workers gets one again, and when a draft was of use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drafters.api import EMPTY_DRAFT, ROOT, Draft, NoiseKey, chain
from drafters.client import DrafterClient, DraftWanted
from drafters.config import DrafterAutoscaling, DrafterConfig
from drafters.demand import USELESS_REST_S, Demand, DrafterCounts
from drafters.usefulness import Usefulness

THERE = DrafterCounts(num_workers=1, is_known=True, num_missed=0, num_asked=0, num_useful=0)
GONE = replace(THERE, num_workers=0)
NEVER = replace(GONE, is_known=False)


def test_one_that_was_never_seen_is_asked_for() -> None:
    assert Demand(0.05).wants(NEVER, 0.0)


def test_one_that_went_is_asked_for_when_it_was_missed() -> None:
    demand = Demand(0.05)
    assert not demand.wants(THERE, 0.0)
    assert not demand.wants(GONE, 1.0)
    assert demand.wants(replace(GONE, num_missed=3), 2.0)
    assert not demand.wants(replace(GONE, num_missed=3), 3.0)


def test_what_was_missed_while_workers_were_there_does_not_count() -> None:
    demand = Demand(0.05)
    assert not demand.wants(replace(THERE, num_missed=5), 0.0)
    assert not demand.wants(replace(GONE, num_missed=5), 1.0)


@pytest.mark.parametrize(
    ("num_asked", "num_useful", "rests"),
    [(1000, 10, True), (1000, 60, False), (49, 0, False), (50, 0, True)],
)
def test_one_that_was_of_no_use_rests(num_asked: int, num_useful: int, rests: bool) -> None:
    demand = Demand(0.05)
    before = replace(THERE, num_asked=500, num_useful=500)
    assert not demand.wants(before, 0.0)
    gone = replace(GONE, num_asked=500 + num_asked, num_useful=500 + num_useful, num_missed=1)
    assert demand.wants(gone, 10.0) is not rests
    gone = replace(gone, num_missed=2)
    assert demand.wants(gone, 9.0 + USELESS_REST_S) is not rests
    assert demand.wants(replace(gone, num_missed=3), 10.0 + USELESS_REST_S)


def test_a_client_asks_for_what_it_misses_where_there_may_be_none() -> None:
    may_go = DrafterConfig(autoscaling=DrafterAutoscaling(min_replicas=0))
    client = DrafterClient({"may_go": may_go, "stays": DrafterConfig()})
    try:
        assert client.wants_worker("may_go")
        assert not client.wants_worker("stays")
        assert not client.wants_worker("unknown")
        wanted = DraftWanted("s", "may_go", 1, [1, 2], 4, NoiseKey(0, 0, 0.0))
        assert client.draft([wanted])[0].status == "away"
        assert client.wants_worker("may_go")
    finally:
        client.stop()


def test_a_draft_is_of_use_if_its_first_token_came() -> None:
    useful = Usefulness()
    for session, draft, token in (
        ("a", chain([5, 6]), 5),
        ("b", chain([5, 6]), 6),
        ("c", EMPTY_DRAFT, 5),
        ("d", Draft((7, 8, 9), (ROOT, ROOT, 0)), 8),
        ("e", Draft((7, 8, 9), (ROOT, ROOT, 0)), 9),
    ):
        useful.proposed(session, draft)
        useful.came(session, token)
        useful.came(session, token)
    assert (useful.num_judged, useful.num_useful) == (5, 2)
    useful.proposed("f", chain([1]))
    useful.forget("f")
    useful.came("f", 1)
    assert useful.num_judged == 5
    assert len(useful) == 0
