from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.pages import PagePool, PageTable

PAGE = 4


def test_a_prefix_left_by_another_sequence_is_reused() -> None:
    pool = PagePool(8, PAGE)
    tokens = list(range(10))
    first = PageTable()
    assert pool.grow(first, len(tokens))
    pool.publish(first, tokens, len(tokens))
    pages = list(first.pages)
    pool.release(first)

    second = PageTable()
    assert pool.reuse_prefix(second, tokens) == 8
    assert second.pages == pages[:2]


def test_one_token_is_always_left_to_compute() -> None:
    pool = PagePool(8, PAGE)
    tokens = list(range(8))
    first = PageTable()
    pool.grow(first, 8)
    pool.publish(first, tokens, 8)

    assert pool.reuse_prefix(PageTable(), tokens) == 4
    assert pool.reuse_prefix(PageTable(), [*tokens, 9]) == 8


def test_pages_in_use_are_shared_and_only_freed_by_the_last_holder() -> None:
    pool = PagePool(4, PAGE)
    tokens = list(range(9))
    first, second = PageTable(), PageTable()
    pool.grow(first, 9)
    pool.publish(first, tokens, 9)
    pool.reuse_prefix(second, tokens)

    pool.release(first)
    assert pool.num_used == 2
    pool.release(second)
    assert pool.num_used == 0


def test_idle_pages_are_evicted_oldest_first_and_then_no_longer_found() -> None:
    pool = PagePool(2, PAGE)
    old, new = [1] * 5, [2] * 5
    for tokens in (old, new):
        table = PageTable()
        pool.grow(table, PAGE)
        pool.publish(table, tokens, PAGE)
        pool.release(table)

    pool.grow(PageTable(), PAGE)
    assert pool.reuse_prefix(PageTable(), old) == 0
    assert pool.reuse_prefix(PageTable(), new) == PAGE


def test_growing_beyond_the_pool_changes_nothing() -> None:
    pool = PagePool(2, PAGE)
    table = PageTable()
    assert not pool.grow(table, 3 * PAGE)
    assert table.pages == []
    assert pool.num_available == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 1), min_size=1, max_size=20)),
        max_size=40,
    )
)
def test_pages_are_never_lost_nor_held_twice_by_strangers(
    script: list[tuple[int, list[int]]],
) -> None:
    pool = PagePool(6, PAGE)
    live: dict[int, tuple[PageTable, list[int]]] = {}
    for who, tokens in script:
        if who in live:
            pool.release(live.pop(who)[0])
            continue
        table = PageTable()
        pool.reuse_prefix(table, tokens)
        if pool.grow(table, len(tokens)):
            pool.publish(table, tokens, len(tokens))
            live[who] = (table, tokens)
        else:
            pool.release(table)
        owners: dict[int, set[tuple[int, ...]]] = {}
        for held, content in live.values():
            for index, page in enumerate(held.pages):
                owners.setdefault(page, set()).add(tuple(content[: (index + 1) * PAGE]))
        assert all(len(contents) == 1 for contents in owners.values())
        assert pool.num_used == len(owners)
    for table, _ in live.values():
        pool.release(table)
    assert pool.num_available == 6
