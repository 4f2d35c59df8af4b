from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drafters.api import EMPTY_DRAFT, ROOT, Draft, chain
from replicas.engine.verification import Verdict, verify_draft


def never(_: int) -> bool:
    return False


def test_an_empty_draft_gives_the_targets_token() -> None:
    assert verify_draft(EMPTY_DRAFT, lambda node: 7, never) == Verdict((7,), ())


def test_the_recovered_token_ends_the_walk() -> None:
    target = {ROOT: 5, 0: 9}
    assert verify_draft(chain([5, 6, 7]), target.__getitem__, never) == Verdict((5, 9), (0,))


def test_a_bonus_token_follows_a_wholly_accepted_draft() -> None:
    target = {ROOT: 5, 0: 6, 1: 8}
    assert verify_draft(chain([5, 6]), target.__getitem__, never) == Verdict((5, 6, 8), (0, 1))


def test_a_tree_is_followed_down_the_branch_that_the_target_takes() -> None:
    tree = Draft((5, 6, 7, 8), (ROOT, ROOT, 1, 2))
    target = {ROOT: 6, 1: 7, 2: 1}
    assert verify_draft(tree, target.__getitem__, never) == Verdict((6, 7, 1), (1, 2))


def test_of_equal_siblings_the_better_ranked_is_followed() -> None:
    tree = Draft((5, 5, 6), (ROOT, ROOT, 0))
    target = {ROOT: 5, 0: 6, 2: 1}
    assert verify_draft(tree, target.__getitem__, never).accepted_nodes == (0, 2)


def test_nothing_follows_the_end_of_the_reply() -> None:
    target = {ROOT: 5, 0: 2}
    verdict = verify_draft(chain([5, 2, 7]), target.__getitem__, lambda token: token == 2)
    assert verdict == Verdict((5, 2), (0, 1))


@st.composite
def trees(draw: st.DrawFn) -> Draft:
    size = draw(st.integers(0, 12))
    parents = [draw(st.integers(ROOT, node - 1)) for node in range(size)]
    return Draft(tuple(draw(st.integers(0, 2)) for _ in range(size)), tuple(parents))


@given(trees(), st.lists(st.integers(0, 2), min_size=14, max_size=14))
def test_what_is_emitted_is_a_prefix_of_the_targets_own_text(draft: Draft, text: list[int]) -> None:
    depth = {ROOT: 0, **dict(enumerate(draft.depths))}
    for node, parent in enumerate(draft.parents):
        assert depth[node] == depth[parent] + 1
    verdict = verify_draft(draft, lambda node: text[depth[node]], never)
    assert list(verdict.token_ids) == text[: len(verdict.token_ids)]
    assert len(verdict.token_ids) == len(verdict.accepted_nodes) + 1
    parent = ROOT
    for node, token in zip(verdict.accepted_nodes, verdict.token_ids, strict=False):
        assert (draft.parents[node], draft.token_ids[node]) == (parent, token)
        parent = node
