"""Which Verifier gets a request: where its prefix is, unless that one is loaded."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.pages import PagePool, PageTable, page_hashes
from replicas.routing import UNSENT_S, Candidate, Placements, PrefixMemory, ranked, without

WEIGHT = 64.0
CANDIDATES = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from([0, 16, 160, 1600])), min_size=1, max_size=6
).map(lambda pairs: [Candidate(f"v{i}", load, tokens) for i, (load, tokens) in enumerate(pairs)])


def first(candidates: list[Candidate], seed: int = 0) -> str:
    return ranked(candidates, WEIGHT, random.Random(seed))[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_request_follows_its_prefix_while_that_saves_more_than_the_queue_costs(seed: int) -> None:
    idle = Candidate("idle", 0.0)
    assert first([Candidate("home", 4.0, 320), idle], seed) == "home"
    assert first([Candidate("home", 6.0, 320), idle], seed) == "idle"


@pytest.mark.parametrize("seed", range(20))
def test_of_those_that_have_the_prefix_the_least_loaded_is_chosen(seed: int) -> None:
    others = [Candidate(f"o{n}", 0.0) for n in range(5)]
    busy, free = Candidate("busy", 9.0, 960), Candidate("free", 2.0, 960)
    assert first([*others, busy, free], seed) == "free"


def test_without_a_prefix_two_are_drawn_and_the_less_loaded_is_chosen() -> None:
    candidates = [Candidate(f"v{load}", float(load)) for load in range(4)]
    counts = Counter(first(candidates, seed) for seed in range(3000))
    # of the six pairs v0 is the less loaded in three, v1 in two, v2 in one
    for name, share in (("v0", 3 / 6), ("v1", 2 / 6), ("v2", 1 / 6)):
        assert counts[name] / 3000 == pytest.approx(share, abs=0.04)
    assert "v3" not in counts


def test_ties_are_broken_at_random() -> None:
    counts = Counter(first([Candidate("a", 1.0), Candidate("b", 1.0)], n) for n in range(1000))
    assert 400 < counts["a"] < 600


@given(CANDIDATES, st.integers(0, 1000))
def test_everyone_is_ranked_once_and_no_holder_is_worse_than_the_first(
    candidates: list[Candidate], seed: int
) -> None:
    order = ranked(candidates, WEIGHT, random.Random(seed))
    assert sorted(order) == sorted(one.replica for one in candidates)
    by_name = {one.replica: one for one in candidates}

    def gain(one: Candidate) -> float:
        return one.cached_tokens - WEIGHT * one.load

    holders = [one for one in candidates if one.cached_tokens]
    assert all(gain(one) <= gain(by_name[order[0]]) for one in holders)


@given(CANDIDATES, st.integers(0, 1000))
def test_more_load_never_attracts(candidates: list[Candidate], seed: int) -> None:
    name = ranked(candidates, WEIGHT, random.Random(seed))[-1]
    loaded = [
        Candidate(one.replica, one.load + 5 * (one.replica == name), one.cached_tokens)
        for one in candidates
    ]
    assert ranked(loaded, WEIGHT, random.Random(seed))[-1] == name


def test_those_that_failed_a_request_are_left_out_while_there_are_others() -> None:
    candidates = [Candidate("a", 0.0, 999), Candidate("b", 9.0)]
    assert [one.replica for one in without(candidates, {"a"})] == ["b"]
    assert without(candidates, {"a", "b"}) == candidates


def test_pages_are_those_that_the_cache_would_reuse() -> None:
    prompt = list(range(100, 150))
    pool = PagePool(8, 16)
    table = PageTable()
    pool.grow(table, len(prompt))
    pool.publish(table, prompt, len(prompt))
    pool.release(table)
    again = PageTable()
    assert pool.reuse_prefix(again, prompt) == 16 * len(page_hashes(prompt, 16, 99)) == 48
    assert again.hash == page_hashes(prompt, 16, 99)[-1]
    assert page_hashes(prompt, 16, 2) == page_hashes(prompt, 16, 99)[:2]


def test_a_prefix_is_remembered_for_each_who_was_given_it() -> None:
    memory = PrefixMemory(100)
    memory.note([b"1", b"2", b"3"], "a")
    memory.note([b"1", b"x"], "b")
    prompt = [b"1", b"2", b"9"]
    assert [memory.num_cached(prompt, name) for name in "abc"] == [2, 1, 0]
    memory.forget_all_but({"b"})
    assert [memory.num_cached(prompt, name) for name in "abc"] == [0, 1, 0]
    assert len(memory) == 2


def test_memory_is_bounded_and_forgets_the_ends_of_old_prompts_first() -> None:
    memory = PrefixMemory(4)
    memory.note([b"1", b"2", b"3"], "a")
    memory.note([b"4", b"5"], "a")
    assert len(memory) == 4
    assert memory.num_cached([b"1", b"2", b"3"], "a") == 2
    memory.note([b"1", b"2"], "a")
    memory.note([b"6"], "a")
    assert memory.num_cached([b"1", b"2"], "a") == 2
    assert memory.num_cached([b"4", b"5"], "a") == 1


def test_a_burst_counts_before_it_has_arrived() -> None:
    placements = Placements()
    for number in range(3):
        placements.place(str(number), "a", 10.0)
    assert placements.load("a", 10.5) == 3
    placements.arrive("0", "b")
    assert placements.load("a", 10.5) == 2
    assert placements.load("b", 10.5) == 1
    assert placements.load("a", 10.0 + UNSENT_S) == 0
    placements.end("0")
    assert placements.load("b", 10.5) == 0


def test_a_call_that_ends_before_it_is_known_to_have_arrived_leaves_nothing() -> None:
    placements = Placements()
    placements.place("x", "a", 0.0)
    placements.end("x")
    placements.arrive("x", "a")
    placements.end("never seen")
    assert placements.load("a", 0.0) == 0
