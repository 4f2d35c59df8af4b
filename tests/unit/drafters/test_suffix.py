"""The suffix drafter against an implementation that is slow and obvious."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from cluster.workloads import read_prompts
from drafters.api import Draft, NoiseKey, SessionContext
from drafters.errors import DrafterConfigError
from drafters.methods.suffix import Shape, Suffix
from models.store import ModelFolder
from tests.unit.drafters.slow_suffix import Settings, slow_draft

SHAPES: tuple[Shape, ...] = ("tree", "chain")
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=25)


def context(token_ids: Sequence[int], prompt_length: int = 1, tenant: str = "") -> SessionContext:
    return SessionContext(tuple(token_ids), prompt_length, NoiseKey(0, 0, 0.0), tenant)


def draft_of(drafter: Suffix, token_ids: Sequence[int], most: int, tenant: str = "") -> Draft:
    """Draft in a session of its own that teaches nothing."""
    drafter.open("probe", context(token_ids, len(token_ids), tenant))
    (draft,) = drafter.propose([("probe", most)])
    drafter.close("probe")
    return draft


def teach(drafter: Suffix, reply: Sequence[int], tenant: str = "") -> None:
    drafter.open("taught", context([9, *reply], 1, tenant))
    drafter.close("taught")


@settings(max_examples=120)
@given(
    pieces=st.lists(TOKENS, min_size=1, max_size=4),
    replies=st.lists(TOKENS, max_size=4),
    shape=st.sampled_from(SHAPES),
    max_match=st.integers(1, 20),
    max_occurrences=st.integers(1, 6),
    max_spec_factor=st.sampled_from([0.5, 1.0, 2.3]),
    min_token_prob=st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
    most=st.integers(1, 12),
)
def test_equals_the_slow_search_however_the_tokens_came(
    pieces: list[list[int]],
    replies: list[list[int]],
    shape: Shape,
    max_match: int,
    max_occurrences: int,
    max_spec_factor: float,
    min_token_prob: float,
    most: int,
) -> None:
    """A session that missed rounds of other arms proposes what a fresh one does."""
    drafter = Suffix(
        shape=shape,
        max_match=max_match,
        max_occurrences=max_occurrences,
        max_spec_factor=max_spec_factor,
        min_token_prob=min_token_prob,
    )
    slow = Settings(shape, max_spec_factor, min_token_prob, max_match, max_occurrences)
    for reply in replies:
        teach(drafter, reply)
    so_far: list[int] = []
    for index, piece in enumerate(pieces):
        so_far += piece
        if index == 0:
            drafter.open("grown", context(piece))
        else:
            drafter.extend("grown", piece)
        (grown,) = drafter.propose([("grown", most)])
        expected = slow_draft(so_far, [reply for reply in replies if len(reply) > 1], most, slow)
        assert (grown.token_ids, grown.parents, grown.score) == (
            expected.token_ids,
            expected.parents,
            expected.score,
        )
        assert draft_of(drafter, so_far, most) == grown
        assert drafter.position("grown") == len(so_far)


@pytest.mark.model
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_slow_search_on_real_tokens(model_folder: ModelFolder, shape: Shape) -> None:
    """The prompts that come with the project: some as one long context, the others as replies."""
    tokenizer = Tokenizer.from_file(str(model_folder.path / "tokenizer.json"))
    texts = [tokenizer.encode("\n".join(prompt.turns)).ids for prompt in read_prompts()]
    own = [token_id for text in texts[1::2] for token_id in text][-450:]
    replies = texts[::2]
    drafter = Suffix(shape=shape)
    for reply in replies:
        teach(drafter, reply)
    drafter.open("s", context(own[:100]))
    num_found = 0
    for end in range(100, len(own), 29):
        drafter.extend("s", own[drafter.position("s") : end])
        (draft,) = drafter.propose([("s", 16)])
        expected = slow_draft(own[:end], replies, 16, Settings(shape))
        assert (draft.token_ids, draft.parents) == (expected.token_ids, expected.parents)
        assert draft.score == expected.score
        num_found += len(draft) > 0
    assert num_found >= 8


def test_long_matches_make_long_drafts() -> None:
    text = list(range(100, 160))
    for length in (1, 3, 8, 30):
        draft = draft_of(Suffix(), [*text, *text[:length]], 64)
        assert draft.token_ids == tuple(text[length : 2 * length])
        assert draft.score == length


def test_the_factor_and_the_sizes_bound_a_draft() -> None:
    text = [*range(100, 160), *range(100, 120)]
    assert len(draft_of(Suffix(max_spec_factor=0.25), text, 64)) == 5
    assert len(draft_of(Suffix(max_spec_factor=1.5), text, 64)) == 30
    assert len(draft_of(Suffix(max_tokens=7), text, 64)) == 7
    assert len(draft_of(Suffix(), text, 3)) == 3


def test_frequent_continuations_come_first_and_rare_ones_not_at_all() -> None:
    text = [t for i in range(10) for t in (1, 2, 3, 4, 5 if i < 7 else 6, 100 + i)]
    text += [1, 2, 3, 4]
    draft = draft_of(Suffix(min_token_prob=0.3), text, 10)
    assert (draft.token_ids, draft.parents) == ((5, 6), (-1, -1))
    assert draft.score == pytest.approx(1.0)
    assert draft_of(Suffix(min_token_prob=0.31), text, 10).token_ids == (5,)
    assert draft_of(Suffix(shape="chain", min_token_prob=0.3), text, 10).token_ids == (5,)


def test_only_the_most_recent_occurrences_count() -> None:
    text = [*[1, 2, 7] * 5, *[1, 2, 8] * 2, 1, 2]
    assert draft_of(Suffix(max_occurrences=2, max_match=2), text, 1).token_ids == (8,)
    assert draft_of(Suffix(max_occurrences=7, max_match=2), text, 1).token_ids == (7,)


def test_a_closed_reply_is_drafted_from_and_its_prompt_is_not() -> None:
    drafter = Suffix()
    drafter.open("a", context([1, 2, 3, 50, 51], 3))
    drafter.extend("a", [52, 53])
    assert draft_of(drafter, [50, 51], 8) == Draft((), ())
    drafter.close("a")
    assert draft_of(drafter, [7, 50, 51], 8).token_ids == (52, 53)
    assert draft_of(drafter, [1, 2], 8) == Draft((), ())


def test_a_session_opened_again_teaches_once() -> None:
    drafter = Suffix()
    for _ in range(3):
        drafter.open("a", context([9, 1, 2, 3], 1))
    drafter.close("a")
    teach(drafter, [1, 2, 4])
    drafter.close("a")
    assert draft_of(drafter, [1, 2], 4).score == 1.0  # 3 and 4 once each


@settings(max_examples=60)
@given(
    taught=st.lists(st.tuples(st.sampled_from("abc"), TOKENS), max_size=8),
    own=TOKENS,
    tenant=st.sampled_from("abcd"),
)
def test_a_tenant_gets_no_token_that_another_taught(
    taught: list[tuple[str, list[int]]], own: list[int], tenant: str
) -> None:
    """Tokens follow each other only as they do in the tenant's own texts."""
    drafter = Suffix()
    for teacher, reply in taught:
        teach(drafter, reply, teacher)
    mine = [reply for teacher, reply in taught if teacher == tenant]
    draft = draft_of(drafter, own, 16, tenant)
    alone = Suffix()
    for reply in mine:
        teach(alone, reply, tenant)
    assert draft_of(alone, own, 16, tenant) == draft
    pairs = {pair for text in (*mine, own) for pair in pairwise(text)}
    for token_id, parent in zip(draft.token_ids, draft.parents, strict=True):
        assert (own[-1] if parent == -1 else draft.token_ids[parent], token_id) in pairs


def test_a_full_pool_forgets_the_oldest_reply() -> None:
    drafter = Suffix(max_pool_tokens=8, max_tenant_tokens=6)
    teach(drafter, [1, 2, 3], "a")
    teach(drafter, [11, 12, 13], "a")
    assert draft_of(drafter, [1, 2], 4, "a").token_ids == (3,)
    teach(drafter, [21, 22, 23], "a")
    assert draft_of(drafter, [1, 2], 4, "a").token_ids == ()
    assert draft_of(drafter, [11, 12], 4, "a").token_ids == (13,)
    teach(drafter, [31, 32, 33], "b")
    assert draft_of(drafter, [11, 12], 4, "a").token_ids == ()
    assert draft_of(drafter, [21, 22], 4, "a").token_ids == (23,)
    assert draft_of(drafter, [31, 32], 4, "b").token_ids == (33,)


def test_without_a_pool_nothing_is_shared() -> None:
    drafter = Suffix(max_pool_tokens=0)
    teach(drafter, [1, 2, 3])
    assert draft_of(drafter, [1, 2], 4) == Draft((), ())


def test_a_4k_context_drafts_within_three_tenths_of_a_millisecond() -> None:
    """Text of words and phrases that recur, with a pool of such text."""
    rng = random.Random(5)
    words = [[rng.randrange(49_000) for _ in range(rng.randint(1, 4))] for _ in range(800)]
    phrases = [[t for _ in range(6) for t in rng.choice(words)] for _ in range(200)]
    text = [t for _ in range(700) for t in rng.choice(rng.choice([words, phrases]))]
    drafter = Suffix()
    for start in range(0, 2_000, 200):
        teach(drafter, text[start : start + 200])
    started = time.perf_counter()
    drafter.open("s", context(text[:4096], 4096))
    opened_s = time.perf_counter() - started
    times = []
    for i in range(4096, 4296, 2):
        drafter.extend("s", text[i : i + 2])
        started = time.perf_counter()
        drafter.propose([("s", 16)])
        times.append(time.perf_counter() - started)
    assert sorted(times)[len(times) // 2] < 3e-4
    assert opened_s < 0.1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"shape": "bush"}, r"shape is one of tree, chain, got 'bush'"),
        ({"max_spec_factor": 0}, r"max_spec_factor is a number from 0.001 to 1000, got 0"),
        (
            {"max_spec_factor": float("nan")},
            r"max_spec_factor is a number from 0.001 to 1000, got nan",
        ),
        ({"max_spec_factor": True}, r"max_spec_factor is a number from 0.001 to 1000, got True"),
        ({"min_token_prob": 1.5}, r"min_token_prob is a number from 0 to 1, got 1.5"),
        ({"min_token_prob": "0.1"}, r"min_token_prob is a number from 0 to 1, got '0.1'"),
        ({"max_match": 0}, r"max_match is a whole number of at least 1, got 0"),
        ({"max_occurrences": 0}, r"max_occurrences is a whole number of at least 1, got 0"),
        ({"max_tokens": 2.0}, r"max_tokens is a whole number of at least 1, got 2.0"),
        ({"max_pool_tokens": -1}, r"max_pool_tokens is a whole number of at least 0, got -1"),
        ({"max_tenant_tokens": None}, r"max_tenant_tokens is a whole number of at least 0"),
        ({"max_tenants": 0}, r"max_tenants is a whole number of at least 1, got 0"),
    ],
)
def test_values_that_cannot_be_are_refused(params: dict[str, object], message: str) -> None:
    with pytest.raises(DrafterConfigError, match=f"^suffix: {message}"):
        Suffix(**params)  # type: ignore[arg-type]  # wrong on purpose


def test_every_parameter_is_in_the_version() -> None:
    variants = [
        Suffix(),
        Suffix(shape="chain"),
        Suffix(max_spec_factor=2),
        Suffix(min_token_prob=0.2),
        Suffix(max_match=32),
        Suffix(max_occurrences=8),
        Suffix(max_tokens=5),
        Suffix(max_pool_tokens=1000),
        Suffix(max_tenant_tokens=1000),
        Suffix(max_tenants=3),
    ]
    assert len({drafter.version for drafter in variants}) == len(variants)
    assert Suffix(max_spec_factor=1).version == Suffix().version
