from __future__ import annotations

from typing import Any

from replicas.api import SamplingParams
from replicas.engine.stopping import Stop, StopRules
from tests.unit.models.small_tokenizers import byte_level

EOS = 2


def rules(**changes: Any) -> StopRules:
    tokenizer: Any = byte_level()
    return StopRules(SamplingParams(**{"max_tokens": 5, **changes}), {EOS}, tokenizer)


def ids(text: str) -> list[int]:
    tokenizer: Any = byte_level()
    encoded: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return encoded


def test_the_end_of_sequence_is_not_part_of_the_text() -> None:
    one = rules()
    assert one.emit(7) is None
    assert one.emit(EOS) == Stop("stop", None, 1)


def test_a_stop_token_is_named() -> None:
    assert rules(stop_token_ids=(9,)).emit(9) == Stop("stop", 9, 0)


def test_the_end_of_sequence_can_be_ignored() -> None:
    one = rules(ignore_eos=True, max_tokens=2)
    assert one.emit(EOS) is None
    assert one.num_left == 1
    assert one.emit(EOS) == Stop("length", None, 2)


def test_a_stop_beats_the_length_limit_at_the_same_token() -> None:
    assert rules(max_tokens=1).emit(EOS) == Stop("stop", None, 0)


def test_a_stop_string_is_found_across_tokens() -> None:
    tokens = ids("say END now")
    one = rules(stop=("END",), max_tokens=100)
    stops = [one.emit(token) for token in tokens]
    found = next(index for index, stop in enumerate(stops) if stop is not None)
    assert stops[found] == Stop("stop", "END", found + 1)
    assert found < len(tokens) - 1
