"""Text for a datastore: how it is read, encoded and put in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from drafters.datastore import corpus
from drafters.datastore.builder import DatastoreBuilder
from drafters.datastore.corpus import Passage, corpus_bytes, read_corpus
from drafters.datastore.encoding import Encoder, fill
from drafters.datastore.store import Datastore
from drafters.errors import CorpusError
from models.tokenizer import Tokenizer
from tests.unit.models.small_tokenizers import TEXT, byte_level

CHAT = [{"role": "user", "content": "Stop here"}, {"role": "assistant", "content": "or go on?"}]


def write_lines(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def contents(*paths: Path, field: str = "text") -> list[Any]:
    return [passage.content for passage in read_corpus(paths, field)]


def test_json_lines_hold_texts_chats_and_token_ids(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        {"text": "one"},
        {"messages": CHAT, "text": "not this"},
        {"token_ids": [1, 2], "messages": "not this"},
        {"messages": [{"role": "user", "content": [{"text": "a"}, {"image": 1}, {"text": "b"}]}]},
    )
    parts = [{"role": "user", "content": "a\nb"}]
    assert contents(path) == ["one", CHAT, (1, 2), parts]


def test_another_field_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text('{"body": "one"}\n\n{"body": "two"}')
    assert contents(path, field="body") == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON: "),
        ('{"text": "\udcff"}', "is not JSON: "),
        ("[1]", "expected a JSON object, found list"),
        ('{"txt": "a"}', "expected 'text', 'messages' or 'token_ids', found 'txt'"),
        ("{}", "expected 'text', 'messages' or 'token_ids', found nothing"),
        ('{"text": 3}', "expected 'text' to be a text, found int"),
        ('{"token_ids": [1, "2"]}', "expected 'token_ids' to be a list of whole numbers"),
        ('{"token_ids": [true]}', "expected 'token_ids' to be a list of whole numbers"),
        ('{"messages": {}}', "expected 'messages' to be a list"),
        ('{"messages": [3]}', "expected every message to have texts 'role' and 'content'"),
        ('{"messages": [{"role": "user"}]}', "expected every message to have texts"),
    ],
)
def test_a_line_that_cannot_be_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + line.encode(errors="surrogateescape"))
    with pytest.raises(CorpusError, match=f"a.jsonl:2:? {message}"):
        contents(path)


def test_plain_text_comes_in_pieces_cut_where_few_tokens_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_CHUNK_BYTES", 10)
    path = tmp_path / "a.txt"
    text = "a line\nand another naïve one\nwithoutanyspaceinit 日本語 end"
    path.write_text(text)
    passages = list(read_corpus([path]))
    pieces = [passage.content for passage in passages]
    assert "".join(map(str, pieces)) == text
    assert pieces[0] == "a line\n"
    assert sum(passage.num_bytes for passage in passages) == path.stat().st_size
    assert [passage.ends_document for passage in passages] == [False] * (len(pieces) - 1) + [True]


def test_what_is_not_utf8_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_CHUNK_BYTES", 4)
    path = tmp_path / "a.txt"
    path.write_bytes(b"123456\xff89")
    with pytest.raises(CorpusError, match=r"a\.txt is not UTF-8 at byte 6: "):
        contents(path)
    path.write_bytes("1234é".encode()[:-1])
    with pytest.raises(CorpusError, match=r"a\.txt is not UTF-8 at byte 4: "):
        contents(path)


def test_all_files_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("12345")
    assert corpus_bytes([path, path]) == 10
    with pytest.raises(CorpusError, match=r"no input at .*: expected a file, found a folder"):
        corpus_bytes([path, tmp_path])
    with pytest.raises(CorpusError, match="no input at /no/such: expected a file, found none"):
        corpus_bytes([path, Path("/no/such")])
    with pytest.raises(CorpusError, match="cannot read /no/such: No such file"):
        contents(Path("/no/such"))


def test_texts_and_chats_are_encoded_as_they_are_served() -> None:
    tokenizer = byte_level()
    encoder = Encoder("m", tokenizer)
    passages = [Passage(TEXT[0], "a", 1), Passage((7, 8), "b", 1), Passage(CHAT, "c", 1)]
    text, token_ids, chat = encoder.encode(passages)
    assert text == tokenizer.encode(TEXT[0], add_special_tokens=False)
    assert token_ids == (7, 8)
    rendered = tokenizer.apply_chat_template(CHAT, tokenize=False)
    assert chat == tokenizer.encode(str(rendered), add_special_tokens=False)
    assert encoder.encode([Passage("", "a", 0)]) == [[]]
    assert encoder.vocabulary.size == max(tokenizer.get_vocab().values()) + 1


def test_a_model_without_chats_says_so() -> None:
    make: Callable[..., Tokenizer] = PreTrainedTokenizerFast
    plain = make(tokenizer_object=byte_level().backend_tokenizer)
    with pytest.raises(CorpusError, match="a:1: a chat, but the model has no chat template"):
        Encoder("m", plain).encode([Passage(CHAT, "a:1", 1)])
    plain.chat_template = "{{ raise_exception('no') }}"
    with pytest.raises(CorpusError, match="a:1: the model's chat template refuses it: no"):
        Encoder("m", plain).encode([Passage(CHAT, "a:1", 1)])


def test_a_corpus_becomes_documents(tmp_path: Path) -> None:
    encoder, path = Encoder("m", byte_level()), tmp_path / "datastore"
    passages = [
        Passage("Stop ", "a", 5, ends_document=False),
        Passage("here", "a", 4),
        Passage((1, 2, 3), "b:1", 9),
    ]
    with DatastoreBuilder(path, encoder.vocabulary) as builder:
        assert list(fill(builder, passages, encoder)) == [18]
        header = builder.finish()
    assert header.num_documents == 2
    assert Datastore(path).longest_match((1, 2), 2).num_occurrences == 1


def test_ids_of_another_vocabulary_are_named(tmp_path: Path) -> None:
    encoder = Encoder("m", byte_level())
    size = encoder.vocabulary.size
    with (
        DatastoreBuilder(tmp_path / "datastore", encoder.vocabulary) as builder,
        pytest.raises(CorpusError, match=rf"b:3: expected token ids of 0\.\.{size - 1} .*{10**20}"),
    ):
        list(fill(builder, [Passage((1, 10**20), "b:3", 9)], encoder))
