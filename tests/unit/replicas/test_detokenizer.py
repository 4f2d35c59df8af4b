"""Pieces of text, joined, are the text of all tokens; stop strings are found however it is cut."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from replicas.detokenizer import IncrementalDetokenizer, Scanned, StopScanner
from tests.unit.models.small_tokenizers import KINDS, TEXT, byte_fallback, byte_level


def decode(tokenizer: PreTrainedTokenizerFast, ids: list[int], skip: bool = True) -> str:
    text = tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


def id_of(tokenizer: PreTrainedTokenizerFast, token: str) -> int:
    return int(tokenizer.get_vocab()[token])


def pieces_of(
    tokenizer: PreTrainedTokenizerFast, groups: list[list[int]], skip: bool = True
) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, skip)
    return [detokenizer.push(group) for group in groups] + [detokenizer.flush()]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_pieces_join_to_the_whole(kind: str, data: st.DataObject) -> None:
    tokenizer = KINDS[kind]()
    some_id = st.integers(0, len(tokenizer) - 1)
    groups = data.draw(st.lists(st.lists(some_id, max_size=6), max_size=20))
    skip = data.draw(st.booleans())
    ids = [i for group in groups for i in group]
    assert "".join(pieces_of(tokenizer, groups, skip)) == decode(tokenizer, ids, skip)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_piece_is_taken_back(kind: str, data: st.DataObject) -> None:
    tokenizer = KINDS[kind]()
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=30))
    detokenizer = IncrementalDetokenizer(tokenizer)
    passed_on = ""
    for count, token_id in enumerate(ids, start=1):
        passed_on += detokenizer.push([token_id])
        assert decode(tokenizer, ids[:count]).startswith(passed_on)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([bytes([b]) for b in (0x41, 0x80, 0x9F, 0xE2, 0xF0, 0x82)])))
def test_broken_utf8_of_any_length(pieces: list[bytes]) -> None:
    tokenizer = byte_level()
    table = {chr(c): c for c in (*range(33, 127), *range(161, 173), *range(174, 256))}
    hidden = (b for b in range(256) if b not in table.values())
    table.update({chr(256 + n): b for n, b in enumerate(hidden)})
    char_of = {byte: char for char, byte in table.items()}
    ids = [id_of(tokenizer, char_of[p[0]]) for p in pieces * 3]
    assert decode(tokenizer, ids) == b"".join(pieces * 3).decode(errors="replace")
    assert "".join(pieces_of(tokenizer, [[i] for i in ids])) == decode(tokenizer, ids)


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_half_a_character_is_held_back(kind: str) -> None:
    tokenizer = KINDS[kind]()
    if kind == "byte_level":
        ids = tokenizer.encode("go 𝄞 on", add_special_tokens=False)
    else:
        names = ["▁", "g", "o", "<0xF0>", "<0x9D>", "<0x84>", "<0x9E>", "▁", "o"]
        ids = [id_of(tokenizer, name) for name in names]
    pieces = pieces_of(tokenizer, [[i] for i in ids])
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces).startswith("go")
    assert "𝄞" in "".join(pieces)


def test_text_comes_with_its_token() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode(TEXT[0], add_special_tokens=False)
    pieces = pieces_of(tokenizer, [[i] for i in ids])
    assert pieces == [decode(tokenizer, [i]) for i in ids] + [""]


@pytest.mark.parametrize("name", ["plain", "broken", "bytes", "special"])
def test_the_window_stays_short(name: str) -> None:
    """Decoded tokens grow with the tokens, not with their square, whatever the tokens are."""
    tokenizer = byte_fallback() if name == "bytes" else byte_level()
    broken = id_of(tokenizer, "<0x80>" if name == "bytes" else "\u0122")
    token_id = {"plain": 70, "broken": broken, "bytes": broken, "special": 0}[name]
    decoded = 0
    real_decode = tokenizer.decode

    class Counting(IncrementalDetokenizer):
        def _decode(self, token_ids: list[int]) -> str:
            nonlocal decoded
            decoded += len(token_ids)
            return super()._decode(token_ids)

    detokenizer = Counting(tokenizer)
    start = time.perf_counter()
    text = "".join(detokenizer.push([token_id]) for _ in range(3000)) + detokenizer.flush()
    assert time.perf_counter() - start < 10
    assert text == real_decode([token_id] * 3000, skip_special_tokens=True)
    assert decoded < 3000 * 60


def test_scanner_finds_a_stop_that_spans_pieces() -> None:
    scanner = StopScanner(("\n\n", "END"))
    assert scanner.push("one\n") == Scanned("one", None)
    assert scanner.push("two E") == Scanned("\ntwo ", None)
    assert scanner.push("NDING") == Scanned("", "END")
    assert scanner.matched == "END"
    assert scanner.push("more") == Scanned("", "END")
    assert scanner.flush() == ""


def test_scanner_gives_back_what_it_held() -> None:
    scanner = StopScanner(("END",))
    assert scanner.push("the EN") == Scanned("the ", None)
    assert scanner.flush() == "EN"


def test_of_stops_complete_together_the_longest_wins() -> None:
    assert StopScanner(("b", "ab")).push("xab") == Scanned("x", "ab")
    assert StopScanner(("abc", "b")).push("xabc") == Scanned("xa", "b")


def test_scanner_refuses_an_empty_stop() -> None:
    with pytest.raises(ValueError, match="not empty"):
        StopScanner(("a", ""))


def first_stop(text: str, stop: list[str]) -> tuple[str, str | None]:
    """The rule, written the slow way: one character more at a time."""
    for end in range(1, len(text) + 1):
        complete = [s for s in stop if text[:end].endswith(s)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


short = st.text("ab\n", min_size=1, max_size=3)


@given(pieces=st.lists(st.text("ab\nc", max_size=4)), stop=st.lists(short, max_size=3))
def test_scanner_does_not_depend_on_the_cuts(pieces: list[str], stop: list[str]) -> None:
    scanner = StopScanner(stop)
    text = "".join(scanner.push(piece).text for piece in pieces) + scanner.flush()
    assert (text, scanner.matched) == first_stop("".join(pieces), stop)


@given(pieces=st.lists(st.text("ab\nc", max_size=4)), stop=st.lists(short, max_size=3))
def test_scanner_holds_back_no_more_than_it_must(pieces: list[str], stop: list[str]) -> None:
    scanner = StopScanner(stop)
    seen = passed_on = ""
    for piece in pieces:
        seen += piece
        passed_on += scanner.push(piece).text
        if scanner.matched:
            break
        held = seen[len(passed_on) :]
        starts = {s[:n] for s in stop for n in range(1, len(s))}
        assert held == max((s for s in starts if seen.endswith(s)), key=len, default="")
