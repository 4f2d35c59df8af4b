"""The file of a datastore: whole or refused."""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafters.datastore.builder import DatastoreBuilder, Vocabulary
from drafters.datastore.header import (
    BLOCK_BYTES,
    HEADER_BYTES,
    Header,
    check_compatible,
    decode_header,
    encode_header,
)
from drafters.datastore.store import Datastore
from drafters.errors import DatastoreError
from tests.unit.drafters.datastores import SMALL, build

DOCUMENTS = [[1, 2, 3, 4, 1, 2, 5], [7, 8, 1, 2, 3]]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path, _ = build(tmp_path, DOCUMENTS, shard_tokens=5, sort_depth=4)
    return path


def next_tokens(datastore: Datastore, *token_ids: int) -> list[int]:
    match = datastore.longest_match(token_ids, len(token_ids))
    [found] = datastore.continuations(match, 1, 100).tolist()
    return list(found)


def test_what_went_in_is_found(whole: Path) -> None:
    datastore = Datastore(whole)
    header = datastore.header
    assert (header.num_documents, header.num_tokens, header.num_shards) == (2, 12, 3)
    assert (header.tokenizer_name, header.vocab_size) == ("small", 50)
    assert header.file_bytes == whole.stat().st_size
    assert next_tokens(datastore, 1, 2) == [3, 3, 5]


@pytest.mark.parametrize(
    ("vocab_size", "num_bytes"), [(50, 2), (65_535, 2), (65_536, 4), (152_064, 4)]
)
def test_tokens_take_as_many_bytes_as_the_vocabulary_needs(
    tmp_path: Path, vocab_size: int, num_bytes: int
) -> None:
    last = vocab_size - 1
    path, header = build(tmp_path, [[0, last, last, 1]], Vocabulary("v", vocab_size, "f"))
    assert header.token_bytes == num_bytes
    assert next_tokens(Datastore(path), 0, last) == [last]
    assert next_tokens(Datastore(path), last, last) == [1]


def test_any_byte_that_was_altered_is_noticed(whole: Path) -> None:
    data = bytearray(whole.read_bytes())
    altered = whole.with_name("altered")
    for index in [*range(700), *range(700, HEADER_BYTES, 97), *range(HEADER_BYTES, len(data))]:
        data[index] ^= 1
        altered.write_bytes(data)
        data[index] ^= 1
        with pytest.raises(DatastoreError, match="expected"):
            Datastore(altered)


@pytest.mark.parametrize("missing", [1, 8, 100, "data", "half a header", "everything"])
def test_a_file_cut_short_is_noticed(whole: Path, missing: int | str) -> None:
    data = whole.read_bytes()
    lengths = {"data": HEADER_BYTES, "half a header": HEADER_BYTES // 2, "everything": 0}
    length = lengths[missing] if isinstance(missing, str) else len(data) - missing
    whole.write_bytes(data[:length])
    with pytest.raises(DatastoreError, match=r"expected .*, found"):
        Datastore(whole)


def test_a_file_with_something_behind_it_is_refused(whole: Path) -> None:
    whole.write_bytes(whole.read_bytes() + b"x")
    with pytest.raises(DatastoreError, match="is too long: expected"):
        Datastore(whole)


def test_another_kind_of_file_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    with pytest.raises(DatastoreError, match="is no datastore: expected it to begin with"):
        Datastore(path)
    with pytest.raises(DatastoreError, match="cannot read the datastore"):
        Datastore(tmp_path)


def test_another_version_says_to_build_again(whole: Path) -> None:
    data = bytearray(whole.read_bytes())
    data[8:12] = struct.pack("<I", 2)
    whole.write_bytes(data)
    with pytest.raises(DatastoreError, match="expected version 1, found 2; build it again"):
        Datastore(whole)


WRONG: dict[str, Any] = {
    "vocab_size": 70_000,
    "token_dtype": ">u4",
    "num_documents": 0,
    "sort_depth": 0,
    "num_tokens": 13,
    "num_shards": 4,
    "data_bytes": 8,
    "checksum": "0" * 64,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_header_that_contradicts_the_file_is_refused(whole: Path, name: str) -> None:
    header = replace(Datastore(whole).header, **{name: WRONG[name]})
    data = whole.read_bytes()
    whole.write_bytes(encode_header(header) + data[HEADER_BYTES:])
    with pytest.raises(DatastoreError, match=r"expected .*, found"):
        Datastore(whole)


def test_a_header_of_other_fields_is_refused(whole: Path) -> None:
    values = asdict(Datastore(whole).header)
    wrong_values: list[Any] = [{**values, "more": 1}, {**values, "num_tokens": "12"}, [], "text"]
    for wrong in wrong_values:
        data = encoded(json.dumps(wrong))
        with pytest.raises(DatastoreError, match="has a wrong header: expected checksum: str"):
            decode_header(data, "file")
    with pytest.raises(DatastoreError, match="has a wrong header: expected JSON"):
        decode_header(encoded("{"), "file")


def encoded(text: str) -> bytes:
    """Return a header that has a text of its own and the right checksum of it."""
    digest = sha256(text.encode()).digest()
    start = struct.pack("<8sII32s", b"BSDSTORE", 1, len(text), digest)
    return (start + text.encode()).ljust(HEADER_BYTES, b"\0")


def test_large_data_is_checked_in_part_unless_all_is_asked_for(tmp_path: Path) -> None:
    documents = np.random.default_rng(0).integers(0, 50, (100, 5000)).tolist()
    path, header = build(tmp_path, documents)
    assert header.num_blocks == 3
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + BLOCK_BYTES + 5] ^= 1
    path.write_bytes(data)
    Datastore(path, checked_bytes=0)
    checked: list[int] = []
    with pytest.raises(DatastoreError, match=f"data from byte {HEADER_BYTES + BLOCK_BYTES} on"):
        Datastore(path, checked_bytes=None, on_checked=checked.append)
    assert checked == [BLOCK_BYTES]


def test_a_build_that_fails_leaves_what_was_there(whole: Path) -> None:
    before = whole.read_bytes()
    with pytest.raises(DatastoreError, match=r"expected token ids of 0\.\.49 .*, found 50"):
        build(whole.parent, [[1, 2], [50]], shard_tokens=1)
    with pytest.raises(DatastoreError, match="expected tokens, found none"):
        build(whole.parent, [[], []])
    with DatastoreBuilder(whole, SMALL) as builder:
        builder.extend([1, 2])  # and it is interrupted
    assert [path.name for path in whole.parent.iterdir()] == [whole.name]
    assert whole.read_bytes() == before


def test_an_open_datastore_outlives_its_replacement(whole: Path) -> None:
    old = Datastore(whole)
    build(whole.parent, [[1, 2, 9]])
    assert next_tokens(old, 1, 2) == [3, 3, 5]
    assert next_tokens(Datastore(whole), 1, 2) == [9]


def test_what_is_no_datastore_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "datastore"
    path.write_text("a corpus, perhaps")
    with pytest.raises(DatastoreError, match="is no datastore and is not replaced"):
        build(tmp_path, DOCUMENTS)
    assert path.read_text() == "a corpus, perhaps"
    with pytest.raises(DatastoreError, match="expected a folder"):
        build(tmp_path / "nowhere", DOCUMENTS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort_depth": 1}, "sort_depth is at least 2, got 1"),
        ({"shard_tokens": 0}, "shard_tokens is 1 to"),
    ],
)
def test_sizes_that_cannot_be(tmp_path: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(DatastoreError, match=message):
        build(tmp_path, DOCUMENTS, SMALL, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_long_document_may_come_in_pieces(tmp_path: Path) -> None:
    whole, _ = build(tmp_path, [range(40), range(10)], shard_tokens=16)
    pieces = tmp_path / "pieces"
    sorted_at: list[int] = []
    with DatastoreBuilder(pieces, SMALL, shard_tokens=16, on_shard=sorted_at.append) as builder:
        builder.end_document()
        for start in range(0, 40, 3):
            builder.extend(range(start, min(start + 3, 40)))
        builder.end_document()
        builder.extend(range(10))
        builder.finish()
    assert pieces.read_bytes() == whole.read_bytes()
    assert sorted_at[-1] == 50


def test_compatible_is_the_same_tokenizer_and_no_more_ids() -> None:
    header = Header("m", "aa", 50, ">u2", 32, 1, 1, 1, 8, "0")
    check_compatible(header, "aa", 50)
    check_compatible(header, "aa", 64)
    with pytest.raises(DatastoreError, match="expected fingerprint bb, found aa"):
        check_compatible(header, "bb", 50)
    with pytest.raises(DatastoreError, match="expected at most 49, found 50"):
        check_compatible(header, "aa", 49)


def test_errors_survive_pickling() -> None:
    error = DatastoreError("expected this, found that")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
