"""The suffix drafter's data structures, each against its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.suffix_index.grams import GramIndex, Occurrence
from drafters.suffix_index.growth import Growth, grow_chain, grow_tree
from drafters.suffix_index.pool import ReplyPool
from tests.unit.drafters.slow_suffix import slow_places

MAX_OCCURRENCES = 3

TEXT = st.lists(st.integers(0, 1), min_size=1, max_size=30)


def found_by(
    index: GramIndex, texts: Sequence[list[int]], pattern: list[int]
) -> dict[int, tuple[tuple[int, int], ...]]:
    """What the index finds, in the terms of the slow search."""
    found = {}
    for length, occurrences in index.matches(pattern):
        ages = [age for age, _, _ in occurrences]
        assert ages == sorted(ages)
        by_text = [next(i for i, t in enumerate(texts) if t is text) for _, text, _ in occurrences]
        found[length] = tuple(
            (number, start) for number, (_, _, start) in zip(by_text, occurrences, strict=True)
        )
    return found


def check(index: GramIndex, texts: Sequence[list[int]], pattern: list[int], most: int) -> None:
    """Each length found is right, and each left out has the occurrences of a longer one."""
    found = found_by(index, texts, pattern)
    assert list(found) == sorted(found, reverse=True)
    for length in range(1, min(most, len(pattern)) + 1):
        places = slow_places(texts, pattern, length, MAX_OCCURRENCES)
        if length in found:
            assert found[length] == places
        elif places:
            assert places in [found[longer] for longer in found if longer > length]


@settings(max_examples=100)
@given(
    steps=st.lists(st.one_of(TEXT, st.none()), min_size=1, max_size=8),
    tail=TEXT,
    pattern=TEXT,
    max_match=st.integers(1, 40),
)
def test_finds_what_is_there_as_texts_come_grow_and_go(
    steps: list[list[int] | None], tail: list[int], pattern: list[int], max_match: int
) -> None:
    """A step is a text to add, or None to remove the oldest."""
    index = GramIndex(max_match, MAX_OCCURRENCES)
    texts: list[list[int]] = []
    for step in steps:
        if step is not None:
            number = index.add(step)
            texts.append(index.token_ids(number))
        elif texts:
            index.remove_oldest()
            del texts[0]
        check(index, texts, pattern, max_match)
    if texts:
        newest = texts[-1]
        index.extend(number, tail)
        assert newest[-len(tail) :] == tail
        check(index, texts, newest, max_match)
    for _ in texts:
        index.remove_oldest()
    assert index.num_grams == 0


@settings(max_examples=60)
@given(text=TEXT, cut=st.integers(0, 50), max_match=st.integers(1, 40))
def test_a_text_added_at_once_is_the_text_token_by_token(
    text: list[int], cut: int, max_match: int
) -> None:
    whole, pieces = (GramIndex(max_match, 2) for _ in range(2))
    whole.add(text)
    number = pieces.add(text[:cut])
    for token_id in text[cut:]:
        pieces.extend(number, [token_id])
    assert list(whole.matches(text)) == list(pieces.matches(text))
    assert whole.num_grams == pieces.num_grams


def test_texts_that_are_alike_are_all_found() -> None:
    """Within one text no token occurs twice, so that all its links go to other texts."""
    index = GramIndex(40, MAX_OCCURRENCES)
    texts = [index.token_ids(index.add(range(number, 40))) for number in (0, 7, 0)]
    for length in (1, 2, 3, 9, 30):
        pattern = list(range(length))
        check(index, texts, pattern, 40)
        assert found_by(index, texts, pattern)[length] == ((2, length), (0, length))


def test_the_search_ends_where_it_is_not_worth_its_while() -> None:
    index = GramIndex(8, 4)
    text = [1, 2, 3, 9, 3, 8, 1, 2, 3]
    index.add(text)
    assert [length for length, _ in index.matches(text)] == [3, 1]
    asked: list[int] = []

    def is_worth(length: int) -> bool:
        asked.append(length)
        return length > 2

    assert [length for length, _ in index.matches(text, is_worth)] == [3]
    assert asked == [8, 3, 1]


Grower = Callable[[list[Occurrence], int, float], Growth]


@pytest.mark.parametrize("grow", [grow_tree, grow_chain])
@settings(max_examples=60)
@given(
    texts=st.lists(TEXT, min_size=1, max_size=6),
    most=st.integers(1, 12),
    least=st.sampled_from([0.0, 0.2, 0.5]),
)
def test_best_first_so_that_every_prefix_is_a_draft(
    grow: Grower, texts: list[list[int]], most: int, least: float
) -> None:
    growth = grow([(age, text, 0) for age, text in enumerate(texts)], most, least)
    assert 1 <= len(growth) <= most or least > 0
    assert growth.probabilities == sorted(growth.probabilities, reverse=True)
    assert all(probability >= least for probability in growth.probabilities)
    assert all(-1 <= parent < node for node, parent in enumerate(growth.parents))
    siblings = list(zip(growth.parents, growth.token_ids, strict=True))
    assert len(set(siblings)) == len(siblings)
    smaller = grow([(age, text, 0) for age, text in enumerate(texts)], max(1, most - 1), least)
    assert smaller.token_ids == growth.token_ids[: len(smaller)]
    assert smaller.parents == growth.parents[: len(smaller)]


class SlowPool:
    """The replies kept, oldest first, by the rules and nothing else."""

    def __init__(self, max_tokens: int, max_tenant_tokens: int, max_tenants: int) -> None:
        self.replies: list[tuple[str, list[int]]] = []
        self.max_tokens, self.max_tenant_tokens = max_tokens, max_tenant_tokens
        self.max_tenants = max_tenants

    def of(self, tenant: str) -> list[list[int]]:
        return [reply for name, reply in self.replies if name == tenant]

    def num_tokens(self, tenant: str | None = None) -> int:
        return sum(len(reply) for name, reply in self.replies if tenant in (None, name))

    def tenants(self) -> list[str]:
        """Those that are kept, the one whose last reply is the oldest first."""
        names = [name for name, _ in self.replies]
        return sorted(set(names), key=lambda name: len(names) - names[::-1].index(name))

    def add(self, tenant: str, reply: list[int]) -> None:
        reply = reply[-self.max_tenant_tokens :]
        if len(reply) < 2:
            return
        self.replies.append((tenant, reply))
        while self.num_tokens(tenant) > self.max_tenant_tokens:
            self.replies.remove(next(one for one in self.replies if one[0] == tenant))
        while len(self.tenants()) > self.max_tenants:
            gone = self.tenants()[0]
            self.replies = [one for one in self.replies if one[0] != gone]
        while self.num_tokens() > self.max_tokens:
            del self.replies[0]


@settings(max_examples=60)
@given(
    added=st.lists(st.tuples(st.sampled_from("abcd"), TEXT), max_size=20),
    max_tokens=st.integers(40, 120),
    max_tenant_tokens=st.integers(2, 40),
    max_tenants=st.integers(1, 4),
    pattern=TEXT,
)
def test_the_pool_keeps_to_its_bounds_and_drops_the_oldest(
    added: list[tuple[str, list[int]]],
    max_tokens: int,
    max_tenant_tokens: int,
    max_tenants: int,
    pattern: list[int],
) -> None:
    pool = ReplyPool(
        partial(GramIndex, 8, MAX_OCCURRENCES),
        max_tokens=max_tokens,
        max_tenant_tokens=max_tenant_tokens,
        max_tenants=max_tenants,
    )
    slow = SlowPool(max_tokens, max_tenant_tokens, max_tenants)
    for tenant, reply in added:
        pool.add(tenant, reply)
        slow.add(tenant, reply)
        assert pool.num_tokens == slow.num_tokens() <= max_tokens
        assert pool.num_tenants == len(slow.tenants()) <= max_tenants
    for tenant in "abcd":
        texts = slow.of(tenant)
        for length, occurrences in pool.matches(tenant, pattern):
            places = slow_places(texts, pattern, length, MAX_OCCURRENCES)
            assert [(texts[number], start) for number, start in places] == [
                (text, start) for _, text, start in occurrences
            ]
        longest = next(pool.matches(tenant, pattern), (0, []))[0]
        lengths = range(min(8, len(pattern)), 0, -1)
        places_of = (slow_places(texts, pattern, n, MAX_OCCURRENCES) for n in lengths)
        assert longest == next((n for n, p in zip(lengths, places_of, strict=True) if p), 0)


def test_what_a_pool_holds_does_not_grow_with_what_it_has_seen() -> None:
    pool = ReplyPool(
        partial(GramIndex, 64, 4), max_tokens=300, max_tenant_tokens=200, max_tenants=3
    )
    grams = []
    for number in range(400):
        pool.add(f"tenant-{number % 5}", [(number * number + i * 7) % 50 for i in range(40)])
        grams.append(pool.num_grams)
    assert max(grams[200:]) <= max(grams[:200]) * 1.2
    assert pool.num_tokens <= 300
