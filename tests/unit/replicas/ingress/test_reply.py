"""A reply's text and tokens do not depend on how its tokens were grouped."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from replicas.api import GenerationResult, SamplingParams, TokenChunk, TokenLogprobs
from replicas.detokenizer import IncrementalDetokenizer, StopScanner
from replicas.ingress.reply import Ending, Reply, ReplyToken
from tests.unit.models.small_tokenizers import byte_level

EOS = 1
ids_of_text = st.sampled_from(byte_level().encode("a b ab aab é🙂!", add_special_tokens=False))


def result_of(ids: list[int], sampling: SamplingParams) -> GenerationResult:
    """Say what the engine would: stop one token at a time, by token, by string, by length."""
    detokenizer, scanner = IncrementalDetokenizer(byte_level()), StopScanner(sampling.stop)
    for count, token_id in enumerate(ids, start=1):
        if token_id == EOS or token_id in sampling.stop_token_ids:
            reason = token_id if token_id in sampling.stop_token_ids else None
            return GenerationResult("r", tuple(ids[:count]), "stop", reason, count - 1)
        stop = scanner.push(detokenizer.push([token_id])).stop
        if stop is not None:
            return GenerationResult("r", tuple(ids[:count]), "stop", stop, count)
    return GenerationResult("r", tuple(ids), "length", None, len(ids))


def build(
    result: GenerationResult, sampling: SamplingParams, cuts: list[int]
) -> tuple[str, list[ReplyToken], Ending]:
    reply = Reply(byte_level(), sampling)
    text = ""
    tokens: list[ReplyToken] = []
    edges = sorted({0, len(result.token_ids), *(c % (len(result.token_ids) + 1) for c in cuts)})
    for start, end in pairwise(edges):
        logprobs = tuple(TokenLogprobs(-float(n)) for n in range(start, end))
        piece = reply.add(TokenChunk("r", start, result.token_ids[start:end], logprobs))
        text += piece.text
        tokens += piece.tokens
        assert reply.num_tokens == end
        assert not any(stop in text for stop in sampling.stop)
    piece, ending = reply.finish(result)
    return text + piece.text, tokens + list(piece.tokens), ending


@settings(max_examples=300, deadline=None)
@given(
    ids=st.lists(ids_of_text | st.just(EOS), min_size=1, max_size=25),
    cuts=st.lists(st.integers(0, 25)),
    stop=st.lists(st.text("ab é🙂", min_size=1, max_size=3), max_size=2),
    stop_ids=st.lists(ids_of_text, max_size=1),
)
def test_grouping_changes_nothing(
    ids: list[int], cuts: list[int], stop: list[str], stop_ids: list[int]
) -> None:
    sampling = SamplingParams(100, stop=tuple(stop), stop_token_ids=tuple(stop_ids))
    result = result_of(ids, sampling)
    text, tokens, ending = build(result, sampling, cuts)
    assert (text, tokens, ending) == build(result, sampling, [])
    assert (text, tokens, ending) == build(result, sampling, list(range(25)))
    assert [t.token_id for t in tokens] == list(result.token_ids[: len(tokens)])
    assert [t.logprobs for t in tokens] == [TokenLogprobs(-float(n)) for n in range(len(tokens))]
    assert len(tokens) <= result.num_text_tokens
    assert all(token.offset <= len(text) for token in tokens)
    if not isinstance(result.stop_reason, str) and ending.stop_reason == result.stop_reason:
        shown = list(result.token_ids[: result.num_text_tokens])
        assert text == byte_level().decode(shown, skip_special_tokens=True)
        assert len(tokens) == result.num_text_tokens


def test_a_stop_token_that_does_not_end_the_reply_is_text() -> None:
    (comma,) = byte_level().encode(",", add_special_tokens=False)
    sampling = SamplingParams(10, stop_token_ids=(comma,))
    ids = (70, comma, 71, comma)
    result = GenerationResult("r", ids, "length", None, 4)
    text, tokens, _ = build(result, sampling, [1, 2, 3])
    assert text == byte_level().decode(list(ids))
    assert len(tokens) == 4
