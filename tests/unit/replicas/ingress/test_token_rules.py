from __future__ import annotations

from replicas.ingress.schema import CompletionsBody
from replicas.ingress.token_rules import bad_word_sequences
from tests.unit.models.small_tokenizers import byte_level


def sequences(*words: str) -> set[str]:
    tokenizer = byte_level()
    body = CompletionsBody(model="m", prompt="p", bad_words=list(words))
    found = bad_word_sequences(tokenizer, body)
    assert len(set(found)) == len(found)
    return {str(tokenizer.decode(list(ids))) for ids in found}


def test_a_bad_word_is_bad_with_and_without_a_space_before_it() -> None:
    assert sequences("fine") == sequences(" fine") == {"fine", " fine"}
    assert sequences("a fine", "day") == {"a fine", " a fine", "day", " day"}


def test_a_bad_word_may_be_all_spaces() -> None:
    assert sequences("  ") == {"  "}


def test_no_bad_words_are_no_sequences() -> None:
    body = CompletionsBody(model="m", prompt="p")
    assert bad_word_sequences(byte_level(), body) == ()
