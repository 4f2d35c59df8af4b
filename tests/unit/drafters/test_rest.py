"""REST against an implementation that is slow and obvious."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from cluster.workloads import read_prompts
from drafters.api import Draft, TargetInfo
from drafters.config import DrafterConfig
from drafters.datastore.builder import Vocabulary
from drafters.datastore.store import Datastore
from drafters.errors import DatastoreError, DrafterConfigError
from drafters.loading import check_config, checks_target
from drafters.methods.rest import Rest
from models.store import ModelFolder
from tests.unit.drafters.datastores import (
    SMALL,
    Documents,
    build,
    context,
    slow_chain,
    slow_continuations,
    slow_tree,
)

DOCUMENTS = st.lists(st.lists(st.integers(0, 3), max_size=25), min_size=1, max_size=5).filter(any)
VOCABULARIES = (SMALL, Vocabulary("full", 65_535, "e" * 16), Vocabulary("wide", 150_000, "d" * 16))


def propose(drafter: Rest, token_ids: Sequence[int], most: int) -> Draft:
    drafter.open("fresh", context(token_ids))
    return drafter.propose([("fresh", most)])[0]


@settings(max_examples=80)
@given(
    documents=DOCUMENTS,
    vocabulary=st.sampled_from(VOCABULARIES),
    shard_tokens=st.sampled_from((1, 3, 7, 1000)),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    continuation=st.integers(1, 4),
    contexts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=4),
    most=st.integers(1, 20),
)
def test_equals_the_slow_lookup_however_the_corpus_was_cut(
    documents: list[list[int]],
    vocabulary: Vocabulary,
    shard_tokens: int,
    sizes: tuple[int, int],
    continuation: int,
    contexts: list[list[int]],
    most: int,
) -> None:
    documents = [[spread(token, vocabulary.size) for token in each] for each in documents]
    sizes = (min(sizes), max(sizes))
    options: dict[str, Any] = {
        "min_ngram": sizes[0],
        "max_ngram": sizes[1],
        "continuation": continuation,
    }
    with tempfile.TemporaryDirectory() as folder:
        path, _ = build(
            Path(folder), documents, vocabulary, shard_tokens=shard_tokens, sort_depth=8
        )
        tree = Rest(datastore=str(path), **options)
        chain = Rest(datastore=str(path), shape="chain", **options)
        for short in contexts:
            token_ids = [spread(token, vocabulary.size) for token in short]
            length, found = slow_continuations(documents, token_ids, sizes, continuation)
            draft = propose(tree, token_ids, most)
            assert (draft.token_ids, draft.parents) == slow_tree(found, most)
            assert draft.score == length
            assert propose(chain, token_ids, most).token_ids == slow_chain(found)[:most]


def spread(token: int, vocab_size: int) -> int:
    """Token ids whose bytes are 0 or 255 where that could go wrong, up to the largest id."""
    return (0, vocab_size - 1, min(255, vocab_size - 2), min(65_535, vocab_size - 3))[token]


@pytest.fixture(scope="module")
def real_documents(model_folder: ModelFolder) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(model_folder.path / "tokenizer.json"))
    texts = [turn for prompt in read_prompts() for turn in prompt.turns]
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]


@pytest.mark.model
@pytest.mark.parametrize("shard_tokens", [500, 1 << 24])
def test_equals_the_slow_lookup_on_real_text(
    real_documents: Documents, tmp_path: Path, shard_tokens: int
) -> None:
    vocabulary = Vocabulary("smollm2", 49_152, "d" * 16)
    documents, asked = real_documents[::2], real_documents[1::2]
    path, _ = build(tmp_path, documents, vocabulary, shard_tokens=shard_tokens)
    drafter = Rest(datastore=str(path))
    num_found = 0
    for token_ids in asked[:6]:
        for end in range(2, min(len(token_ids), 60)):
            length, found = slow_continuations(documents, token_ids[:end], (2, 16), 10)
            draft = propose(drafter, token_ids[:end], 64)
            assert (draft.token_ids, draft.parents) == slow_tree(found, 64)
            assert draft.score == length
            num_found += length > 0
    assert num_found > 50


def test_what_comes_most_often_is_best_and_the_rest_branches(tmp_path: Path) -> None:
    documents = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 7], [9, 9, 9]]
    path, _ = build(tmp_path, documents)
    draft = propose(Rest(datastore=str(path)), [8, 1, 2], 64)
    assert draft.token_ids == (3, 7, 4, 5)
    assert draft.parents == (-1, -1, 0, 0)
    assert draft.score == 2.0


def test_no_match_and_no_draft_goes_beyond_a_document(tmp_path: Path) -> None:
    path, _ = build(tmp_path, [[1, 2], [3, 4, 5]])
    drafter = Rest(datastore=str(path), min_ngram=1)
    assert propose(drafter, [2], 64).token_ids == ()
    assert propose(drafter, [2, 3], 64).score == 1.0
    assert propose(drafter, [2, 3], 64).token_ids == (4, 5)


def test_an_ending_that_nothing_follows_gives_way_to_a_shorter_one(tmp_path: Path) -> None:
    path, _ = build(tmp_path, [[5, 1, 2, 3], [1, 2, 3, 4]])
    draft = propose(Rest(datastore=str(path)), [5, 1, 2, 3], 64)
    assert (draft.score, draft.token_ids) == (3.0, (4,))


def test_an_id_that_no_document_can_have_ends_what_is_looked_up(tmp_path: Path) -> None:
    path, _ = build(tmp_path, [[1, 2, 3, 4]])
    drafter = Rest(datastore=str(path))
    assert propose(drafter, [1, 65_535, 2, 3], 64).score == 2.0
    assert propose(drafter, [1, 2, 50], 64).token_ids == ()


def test_of_many_occurrences_an_even_selection_keeps_the_shares(tmp_path: Path) -> None:
    documents = [[1, 2, 30 if number % 4 else 40] for number in range(800)]
    for shard_tokens in (1 << 20, 333):
        path, _ = build(tmp_path, documents, shard_tokens=shard_tokens)
        drafter = Rest(datastore=str(path), max_occurrences=100)
        datastore = Datastore(path)
        match = datastore.longest_match([1, 2], 2)
        [column] = datastore.continuations(match, 1, 100).tolist()
        assert (len(column), match.num_occurrences) == (100, 800)
        assert column == sorted(column)
        assert 70 <= column.count(30) <= 80
        assert propose(drafter, [1, 2], 2).token_ids == (30, 40)


def test_the_largest_draft(tmp_path: Path) -> None:
    path, _ = build(tmp_path, [[1, 2, *range(3, 45)]])
    tree, chain = Rest(datastore=str(path)), Rest(datastore=str(path), shape="chain")
    assert (tree.max_tokens, chain.max_tokens) == (64, 10)
    assert len(propose(tree, [1, 2], 1000)) == 10
    assert propose(chain, [1, 2], 1000).token_ids == tuple(range(3, 13))


def test_the_version_is_of_parameters_and_datastore(tmp_path: Path) -> None:
    path, header = build(tmp_path, [[1, 2, 3]])
    version = Rest(datastore=str(path)).version
    assert header.checksum[:16] in version
    assert Rest(datastore=str(path), max_ngram=9).version != version
    path, _ = build(tmp_path, [[1, 2, 4]])
    assert Rest(datastore=str(path)).version != version


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"min_ngram": 0}, "min_ngram is a whole number of at least 1, got 0"),
        ({"min_ngram": 5, "max_ngram": 4}, "max_ngram is a whole number of at least 5, got 4"),
        ({"max_ngram": 32}, "max_ngram is at most 31 with this datastore, got 32"),
        ({"max_occurrences": 2.5}, "max_occurrences is a whole number of at least 1, got 2.5"),
        ({"continuation": 0}, "continuation is a whole number"),
        ({"max_tokens": 0}, "max_tokens is a whole number"),
        ({"shape": "star"}, "shape is one of tree, chain, got 'star'"),
        ({"datastore": "here"}, "datastore is an absolute path, .*; got 'here'"),
        ({"datastore": "/no/such"}, "cannot read the datastore /no/such: No such file"),
    ],
)
def test_values_that_cannot_be(tmp_path: Path, params: dict[str, Any], message: str) -> None:
    path, _ = build(tmp_path, [[1, 2, 3]])
    with pytest.raises(DrafterConfigError, match=message):
        Rest(**{"datastore": str(path), **params})


def test_a_datastore_that_does_not_fit_the_model_is_refused_before_deploying(
    tmp_path: Path,
) -> None:
    path, _ = build(tmp_path, [[1, 2, 3]])
    config = DrafterConfig(method="rest", params={"datastore": str(path)})
    assert checks_target(config)
    assert not checks_target(DrafterConfig(method="prompt_lookup"))
    check_config(config, TargetInfo("m", SMALL.size + 14, SMALL.fingerprint))
    with pytest.raises(
        DatastoreError,
        match=r"does not fit the model m: .*expected fingerprint 0000, found f{16} \(of small\)",
    ):
        check_config(config, TargetInfo("m", SMALL.size, "0000"))
    with pytest.raises(DatastoreError, match="expected at most 49, found 50"):
        check_config(config, TargetInfo("m", SMALL.size - 1, SMALL.fingerprint))


def test_wrong_values_are_found_before_deploying(tmp_path: Path) -> None:
    path, _ = build(tmp_path, [[1, 2, 3]])
    target = TargetInfo("m", SMALL.size, SMALL.fingerprint)
    config = DrafterConfig(method="rest", params={"datastore": str(path), "max_ngram": 99})
    check_config(config)
    with pytest.raises(DrafterConfigError, match="max_ngram is at most 31"):
        check_config(config, target)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DatastoreError, match="is cut short"):
        check_config(DrafterConfig(method="rest", params={"datastore": str(path)}), target)
