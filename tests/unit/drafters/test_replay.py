"""Replays of followed sequences: the counts of a slow replay, bounded, and none of it shared."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.api import EMPTY_DRAFT, Draft, NoiseKey, SessionContext, chain
from drafters.methods.prompt_lookup import PromptLookup
from drafters.methods.suffix import Suffix
from drafters.replay import MAX_NODES, Replayer, count
from drafters.shadow import (
    MAX_DEPTH,
    MAX_RANK,
    NUM_SCORE_BUCKETS,
    FollowedTokens,
    ShadowCell,
    add_counts,
    score_bucket,
)

PROMPT = (1, 2, 3, 4, 1, 2)


def text(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    phrases = [[rng.randrange(20) for _ in range(5)] for _ in range(4)]
    return [token for _ in range(length // 5) for token in rng.choice(phrases)]


def feed(replayer: Replayer, prompt: Sequence[int], reply: Sequence[int], sizes: list[int]) -> None:
    replayer.take(FollowedTokens("s", 0, tuple(prompt)), 0.0)
    position, left = len(prompt), list(reply)
    for size in [*sizes, len(left)]:
        part, left = left[:size], left[size:]
        replayer.take(FollowedTokens("s", position, tuple(part), is_last=not left), 0.0)
        position += len(part)
        if not left:
            break
    while replayer.has_work:
        replayer.step()


def slow_counts(prompt: Sequence[int], reply: Sequence[int]) -> dict[ShadowCell, tuple[int, int]]:
    """At each token of the reply a fresh drafter proposes, and its chain is compared."""
    total: dict[ShadowCell, tuple[int, int]] = {}
    for start in range(len(reply)):
        drafter = PromptLookup()
        context = (*prompt, *reply[:start])
        drafter.open("x", SessionContext(tuple(context), 0, NoiseKey(0, 0, 0.0)))
        draft = drafter.propose([("x", MAX_NODES)])[0]
        for depth, token in enumerate(draft.token_ids[:MAX_DEPTH]):
            if start + depth >= len(reply):
                break
            came = reply[start + depth] == token
            cell = ShadowCell(score_bucket(draft.score), depth + 1, 0)
            add_counts(total, {cell: (1, int(came))})
            if not came:
                break
    return total


@given(st.integers(0, 1000), st.lists(st.integers(1, 30), max_size=8))
def test_counts_are_those_of_a_slow_replay(seed: int, sizes: list[int]) -> None:
    prompt, reply = text(seed, 30), text(seed, 60)[7:]
    replayer = Replayer(PromptLookup())
    feed(replayer, prompt, reply, sizes)
    assert replayer.take_counts() == slow_counts(prompt, reply)
    assert replayer.take_counts() == {}
    assert len(replayer) == 0


def test_siblings_are_offered_together_and_what_was_not_reached_is_not() -> None:
    draft = Draft((7, 8, 9, 5, 6), (-1, -1, 0, 1, 1), score=2.0)
    assert count(draft, [8, 6]) == {
        ShadowCell(6, 1, 0): (1, 0),
        ShadowCell(6, 1, 1): (1, 1),
        ShadowCell(6, 2, 0): (1, 0),
        ShadowCell(6, 2, 1): (1, 1),
    }
    assert count(draft, [8]) == {ShadowCell(6, 1, 0): (1, 0), ShadowCell(6, 1, 1): (1, 1)}
    assert count(draft, [3, 6]) == {ShadowCell(6, 1, 0): (1, 0), ShadowCell(6, 1, 1): (1, 0)}
    assert count(EMPTY_DRAFT, [3]) == count(draft, []) == {}


@st.composite
def trees(draw: st.DrawFn) -> Draft:
    """Trees of up to twelve nodes over three tokens, so that siblings may be alike."""
    size = draw(st.integers(0, 12))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    tokens = tuple(draw(st.integers(0, 2)) for _ in range(size))
    return Draft(tokens, parents, draw(st.floats(0.0, 40.0)))


def slow_count(draft: Draft, came: Sequence[int]) -> dict[ShadowCell, tuple[int, int]]:
    """Each node by itself: offered if the first of each token's siblings lead to its parent."""

    def siblings(node: int) -> list[int]:
        return [other for other in range(len(draft)) if draft.parents[other] == draft.parents[node]]

    def path(node: int) -> list[int]:
        return [] if node < 0 else [*path(draft.parents[node]), node]

    def has_come(node: int) -> bool:
        depth = len(path(node))
        alike = [other for other in siblings(node) if draft.token_ids[other] == came[depth - 1]]
        return alike[:1] == [node]

    total: dict[ShadowCell, tuple[int, int]] = {}
    for node in range(len(draft)):
        *above, _ = path(node)
        depth = len(above) + 1
        if depth <= min(len(came), MAX_DEPTH) and all(map(has_come, above)):
            rank = min(MAX_RANK, siblings(node).index(node))
            cell = ShadowCell(score_bucket(draft.score), depth, rank)
            add_counts(total, {cell: (1, int(has_come(node)))})
    return total


@given(trees(), st.lists(st.integers(0, 2), max_size=6))
def test_counts_of_trees_are_those_of_each_node_by_itself(draft: Draft, came: list[int]) -> None:
    assert count(draft, came) == slow_count(draft, came)


def test_high_ranks_share_a_cell() -> None:
    wide = Draft(tuple(range(9)), (-1,) * 9, score=1.0)
    assert count(wide, [8])[ShadowCell(4, 1, 3)] == (6, 1)
    assert count(chain(range(30), 1.0), list(range(30)))[ShadowCell(4, MAX_DEPTH, 0)] == (1, 1)
    assert len(count(chain(range(30), 1.0), list(range(30)))) == MAX_DEPTH


@given(st.floats(allow_nan=True), st.floats(allow_nan=False))
def test_buckets_grow_with_the_score(one: float, other: float) -> None:
    assert 0 <= score_bucket(one) < NUM_SCORE_BUCKETS
    if one <= other:
        assert score_bucket(one) <= score_bucket(other)


@pytest.mark.parametrize("position", [5, 7])
def test_a_sequence_with_a_hole_is_not_followed_any_more(position: int) -> None:
    drafter = PromptLookup()
    replayer = Replayer(drafter)
    replayer.take(FollowedTokens("s", 0, PROMPT), 0.0)
    replayer.take(FollowedTokens("s", position, tuple(range(40))), 0.0)
    assert (len(replayer), replayer.has_work, replayer.num_dropped) == (0, False, 1)
    replayer.take(FollowedTokens("nobody", 3, (1,)), 0.0)
    assert len(replayer) == 0


def test_what_is_held_is_bounded() -> None:
    replayer = Replayer(PromptLookup(), max_replays=2, max_waiting=50, idle_s=10.0)
    for index in range(3):
        replayer.take(FollowedTokens(f"s{index}", 0, PROMPT), 0.0)
    assert [replayer.follows(f"s{index}") for index in range(3)] == [True, True, False]
    replayer.take(FollowedTokens("s0", 6, tuple(range(51))), 1.0)
    assert not replayer.follows("s0")
    replayer.take(FollowedTokens("s3", 0, PROMPT), 11.0)
    assert not replayer.follows("s1")
    assert len(replayer) == 1
    assert replayer.num_dropped == 3


def test_a_replay_that_fails_is_dropped_alone() -> None:
    class Broken(PromptLookup):
        def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
            if token_ids[0] == 13:
                raise RuntimeError("planned")
            super().extend(session_id, token_ids)

    replayer = Replayer(Broken())
    for name, first in (("bad", 13), ("good", 1)):
        replayer.take(FollowedTokens(name, 0, PROMPT), 0.0)
        replayer.take(FollowedTokens(name, 6, (first, 2, 3), is_last=True), 0.0)
    with pytest.raises(RuntimeError, match="planned"):
        replayer.step()
    while replayer.has_work:
        replayer.step()
    assert len(replayer) == 0
    assert sum(offered for offered, _ in replayer.take_counts().values()) > 3


def test_a_replay_teaches_nobody_and_knows_only_its_tenants_replies() -> None:
    """A method that shares replies must not find the very reply that is replayed."""
    drafter = Suffix()
    replayer = Replayer(drafter)
    feed(replayer, PROMPT, [5, 6, 7, 8, 9] * 8, [])
    drafter.open("fresh", SessionContext((3, 5, 6, 7), 4, NoiseKey(0, 0, 0.0)))
    assert len(drafter.propose([("fresh", 4)])[0]) == 0
