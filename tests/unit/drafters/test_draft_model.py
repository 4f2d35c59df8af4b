"""The draft model against a model that computes everything anew."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.api import Draft, NoiseKey
from drafters.methods.draft_model import DraftModel
from models.batch import PackedBatch
from tests.unit.drafters.draft_models import (
    SlowModel,
    context,
    paths,
    save_draft_model,
    save_smaller_model,
)

NUM_TOKENS = 50
LIMITS = {"top_k": 4, "beam": 3, "depth": 4}


@pytest.fixture(scope="module", params=["mistral", "gpt2", "smaller"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp(request.param)
    if request.param == "smaller":
        return save_smaller_model(path, NUM_TOKENS)
    return save_draft_model(request.param, path, NUM_TOKENS)


@pytest.fixture(scope="module")
def slow(folder: Path) -> SlowModel:
    return SlowModel(folder, NUM_TOKENS)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_draft_model("llama", tmp_path_factory.mktemp("llama"), NUM_TOKENS)


def drafter(folder: Path, **params: Any) -> DraftModel:
    return DraftModel(model=str(folder), **{"cache_tokens": 2048, **params})


def tokens(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(NUM_TOKENS) for _ in range(length)]


def check_draft(
    draft: Draft, slow: SlowModel, shape: str, token_ids: list[int], noise: NoiseKey, most: int
) -> None:
    if shape == "chain":
        assert draft.token_ids == slow.chain(token_ids, noise, most)
        assert draft.is_chain
    else:
        expected = slow.tree_values(token_ids, noise, most, LIMITS)
        values = [slow.value(token_ids, noise, path) for path in paths(draft)]
        assert values == pytest.approx(expected, rel=1e-3)
        assert len(set(paths(draft))) == len(draft)
    total = sum(slow.value(token_ids, noise, path) for path in paths(draft))
    assert draft.score == pytest.approx(total, rel=1e-3)


def accepted(rng: random.Random, draft: Draft) -> list[int]:
    """Some path of a draft, and a token that comes after it."""
    path = rng.choice([(), *paths(draft)])
    return [*path, rng.randrange(NUM_TOKENS)]


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_whatever_happened_before_a_draft_is_that_of_a_plain_forward(
    folder: Path, slow: SlowModel, shape: str
) -> None:
    """Rounds of other arms, accepted drafts, eviction and batches leave no trace."""
    rng = random.Random(5)
    tested = drafter(folder, shape=shape, cache_tokens=160, **LIMITS)
    shared = tokens(rng, 20)
    contexts: dict[str, tuple[list[int], NoiseKey]] = {}
    num_drafts = num_empty = 0
    for _ in range(40):
        name = rng.choice("abcdef")
        if name not in contexts or rng.random() < 0.1:
            token_ids = shared[: rng.randrange(21)] + tokens(rng, rng.randrange(1, 25))
            noise = NoiseKey(rng.randrange(2**63), rng.randrange(2), rng.choice([0.0, 0.7, 1.6]))
            contexts[name] = (token_ids, noise)
            tested.open(name, context(token_ids, noise))
        names = rng.sample(sorted(contexts), rng.randrange(1, min(3, len(contexts)) + 1))
        wanted = [(one, rng.choice([1, 2, 5, 12])) for one in names]
        for (one, most), draft in zip(wanted, tested.propose(wanted), strict=True):
            token_ids, noise = contexts[one]
            num_empty += not len(draft)
            if len(draft):
                check_draft(draft, slow, shape, token_ids, noise, most)
                num_drafts += 1
            new = accepted(rng, draft) + tokens(rng, rng.choice([0, 0, 3]))
            tested.extend(one, new)
            token_ids.extend(new)
            assert tested.position(one) == len(token_ids)
        if rng.random() < 0.1:
            tested.close(name)
            del contexts[name]
    assert num_drafts > 40
    assert num_empty < num_drafts / 4
    for name in contexts:
        tested.close(name)
    assert tested._drafting.sessions.pool.num_used == 0


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_together_or_one_by_one(llama: Path, shape: str) -> None:
    rng = random.Random(1)
    together, alone = (drafter(llama, shape=shape, **LIMITS) for _ in range(2))
    wanted = [(f"s{i}", 1 + i) for i in range(6)]
    for name, most in wanted:
        one = context(tokens(rng, 5 + 7 * most))
        together.open(name, one)
        alone.open(name, one)
    one_by_one = [alone.propose([one])[0] for one in wanted]
    for draft, expected in zip(together.propose(wanted), one_by_one, strict=True):
        assert (draft.token_ids, draft.parents) == (expected.token_ids, expected.parents)
        assert draft.score == pytest.approx(expected.score, rel=1e-4)


def test_one_forward_a_depth_for_all(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tested = drafter(llama, shape="tree", **LIMITS)
    model = tested._drafting._model
    sizes: list[int] = []
    forward = model.forward

    def spy(batch: PackedBatch) -> torch.Tensor:
        sizes.append(batch.num_rows)
        return forward(batch)

    monkeypatch.setattr(model, "forward", spy)
    for name in "abc":
        tested.open(name, context(tokens(random.Random(name), 10)))
    tested.propose([(name, 30) for name in "abc"])
    assert sizes == [30, 9, 9, 9]


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_accepted_tokens_are_not_computed_again(llama: Path, shape: str) -> None:
    tested = drafter(llama, shape=shape, **LIMITS)
    token_ids = tokens(random.Random(2), 40)
    tested.open("s", context(token_ids))
    (draft,) = tested.propose([("s", 4)])
    deepest = max(paths(draft)[:-1], key=len)
    tested.extend("s", [*deepest, 7])
    before = tested._drafting.num_computed
    tested.propose([("s", 1)])
    assert tested._drafting.num_computed - before == 1 + (len(deepest) == 0)


def test_a_context_that_begins_like_another_is_not_computed_again(llama: Path) -> None:
    tested = drafter(llama)
    token_ids = tokens(random.Random(3), 40)
    for name, num_computed in (("a", 40), ("b", 40 - 32)):
        before = tested._drafting.num_computed
        tested.open(name, context(token_ids))
        tested.propose([(name, 1)])
        assert tested._drafting.num_computed - before == num_computed


def test_the_session_asked_for_longest_ago_gives_its_pages(llama: Path) -> None:
    tested = drafter(llama, cache_tokens=96)
    rng = random.Random(4)
    for name in "abc":
        tested.open(name, context(tokens(rng, 30)))
    for name in "abac":  # two pages each, and a third for the draft
        assert len(tested.propose([(name, 4)])[0]) == 4
    computed = []
    for name in "ab":
        before = tested._drafting.num_computed
        assert len(tested.propose([(name, 1)])[0]) == 1
        computed.append(tested._drafting.num_computed - before)
    assert computed == [1, 30]


def test_a_call_larger_than_the_cache_drafts_for_those_that_fit(llama: Path) -> None:
    tested = drafter(llama, cache_tokens=96)
    rng = random.Random(4)
    for name, length in (("long", 97), ("a", 40), ("b", 40), ("c", 40)):
        tested.open(name, context(tokens(rng, length)))
    drafts = tested.propose([(name, 2) for name in ("long", "a", "b", "c")])
    assert [len(draft) for draft in drafts] == [0, 2, 2, 0]
    tested.close("a")
    assert len(tested.propose([("c", 2)])[0]) == 2


def test_a_long_context_is_computed_a_part_at_a_time(llama: Path) -> None:
    tested = drafter(llama, max_step_tokens=16)
    rng = random.Random(6)
    token_ids = tokens(rng, 50)
    tested.open("short", context(token_ids[:10]))
    tested.open("long", context(token_ids))
    lengths = []
    for _ in range(4):
        before = tested._drafting.num_computed
        long, short = tested.propose([("long", 1), ("short", 1)])
        assert tested._drafting.num_computed - before <= 16
        assert len(short) == 1  # never waits behind the long one
        tested.extend("short", [1])
        lengths.append(len(long))
    assert lengths == [0, 0, 0, 1]
    fresh = drafter(llama)
    fresh.open("s", context(token_ids))
    assert long.token_ids == fresh.propose([("s", 1)])[0].token_ids


def test_drafts_end_where_the_models_context_does(llama: Path) -> None:
    tested = drafter(llama, max_context=64)
    token_ids = tokens(random.Random(7), 65)
    for length, expected in ((61, 4), (63, 2), (64, 1), (65, 0)):
        tested.open("s", context(token_ids[:length]))
        assert len(tested.propose([("s", 8)])[0]) == expected


def test_tokens_that_the_model_does_not_know_get_empty_drafts(llama: Path) -> None:
    tested = drafter(llama)
    tested.open("a", context([1, 61, 2]))
    tested.open("b", context([1, 2]))
    tested.open("none", context([]))
    wanted = [("a", 2), ("b", 2), ("none", 2)]
    assert [len(draft) for draft in tested.propose(wanted)] == [0, 2, 0]
    tested.extend("b", [1000])
    assert [len(draft) for draft in tested.propose([("b", 2)])] == [0]


def test_a_session_may_be_asked_for_twice_in_a_call(llama: Path) -> None:
    tested = drafter(llama)
    tested.open("s", context([1, 2, 3]))
    short, long = tested.propose([("s", 2), ("s", 5)])
    assert (len(short), len(long)) == (2, 5)
    assert long.token_ids[:2] == short.token_ids


def test_a_draft_has_its_own_threads(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tested = drafter(llama, num_threads=3)
    seen = []
    draft = tested._drafting.draft

    def spy(most: dict[str, int]) -> dict[str, Draft]:
        seen.append(torch.get_num_threads())
        return draft(most)

    monkeypatch.setattr(tested._drafting, "draft", spy)
    before = torch.get_num_threads()
    tested.open("s", context([1]))
    tested.propose([("s", 1)])
    assert (seen, torch.get_num_threads()) == ([3], before)
