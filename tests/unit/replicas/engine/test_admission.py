from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replicas.api import GenerationRequest, SamplingParams
from replicas.engine.admission import Limits, check_request
from replicas.errors import RequestError

EOS = 9
LIMITS = Limits(vocab_size=10, max_context=20, cache_tokens=16, eos_token_ids=frozenset({EOS}))
GOOD = GenerationRequest("r", (1, 2, 3), SamplingParams(max_tokens=8), seed=0)


def with_sampling(**changes: Any) -> GenerationRequest:
    return replace(GOOD, sampling=replace(GOOD.sampling, **changes))


def test_a_good_request_passes() -> None:
    check_request(GOOD, LIMITS)
    check_request(with_sampling(max_tokens=13), LIMITS)


@pytest.mark.parametrize(
    "changes",
    [
        {"allowed_token_ids": (EOS,)},
        {"allowed_token_ids": (5, 5), "banned_token_ids": (6,)},
        {"allowed_token_ids": (5, EOS), "min_tokens": 2},
        {"allowed_token_ids": (EOS,), "min_tokens": 2, "ignore_eos": True},
        {"allowed_token_ids": (5, 6), "banned_sequences": ((5, 6),)},
        {"banned_token_ids": tuple(range(9))},
        {"temperature": 0.0, "top_p": 1.0, "min_p": 1.0, "repetition_penalty": 0.1},
        {"stop": ("x",)},
    ],
    ids=str,
)
def test_what_leaves_a_token_passes(changes: dict[str, Any]) -> None:
    check_request(with_sampling(**changes), LIMITS)


@pytest.mark.parametrize(
    ("request_", "param", "words"),
    [
        (replace(GOOD, prompt_token_ids=()), "prompt", "empty"),
        (replace(GOOD, prompt_token_ids=(1, 10)), "prompt", "token id 10"),
        (replace(GOOD, prompt_token_ids=(-1,)), "prompt", "token id -1"),
        (replace(GOOD, resume_token_ids=(11,)), "resume_token_ids", "token id 11"),
        (replace(GOOD, resume_token_ids=(1,) * 8), "resume_token_ids", "already complete"),
        (with_sampling(logit_bias={12: 1.0}), "logit_bias", "token id 12"),
        (with_sampling(stop_token_ids=(10,)), "stop_token_ids", "token id 10"),
        (with_sampling(allowed_token_ids=(10,)), "allowed_token_ids", "token id 10"),
        (with_sampling(banned_token_ids=(-2,)), "banned_token_ids", "token id -2"),
        (with_sampling(banned_sequences=((1, 11),)), "bad_words", "token id 11"),
        (with_sampling(banned_sequences=((),)), "bad_words", "no tokens"),
        (with_sampling(allowed_token_ids=()), "allowed_token_ids", "empty"),
        (with_sampling(temperature=-0.1), "temperature", "at least 0, got -0.1"),
        (with_sampling(temperature=float("nan")), "temperature", "got nan"),
        (with_sampling(top_p=0.0), "top_p", "above 0"),
        (with_sampling(top_k=-1), "top_k", "at least 0"),
        (with_sampling(min_p=1.1), "min_p", "from 0 to 1"),
        (with_sampling(repetition_penalty=0.0), "repetition_penalty", "above 0"),
        (with_sampling(presence_penalty=float("inf")), "logit_bias", "finite"),
        (with_sampling(logit_bias={1: float("nan")}), "logit_bias", "finite"),
        (with_sampling(min_tokens=-1), "min_tokens", "at least 0"),
        (with_sampling(logprobs=-1), "logprobs", "at least 0"),
        (with_sampling(stop=("a", "")), "stop", "empty string"),
        (with_sampling(max_tokens=0), "max_tokens", "at least 1"),
        (with_sampling(min_tokens=9), "min_tokens", r"\(9\) is above max_tokens \(8\)"),
        (with_sampling(max_tokens=14), "max_tokens", "context of 16 tokens"),
    ],
)
def test_what_is_wrong_is_said(request_: GenerationRequest, param: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        check_request(request_, LIMITS)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"allowed_token_ids": (5,), "banned_token_ids": (5,)}, "allowed_token_ids"),
        ({"allowed_token_ids": (EOS,), "min_tokens": 1}, "allowed_token_ids"),
        ({"allowed_token_ids": (5,), "banned_sequences": ((5, 5),)}, "allowed_token_ids"),
        ({"allowed_token_ids": (5,), "stop_token_ids": (5,), "min_tokens": 1}, "allowed_token_ids"),
        ({"banned_token_ids": tuple(range(10))}, "banned_token_ids"),
        ({"banned_token_ids": tuple(range(9)), "min_tokens": 1}, "banned_token_ids"),
    ],
    ids=str,
)
def test_controls_that_may_leave_no_token_are_refused(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError, match="one must be left") as caught:
        check_request(with_sampling(**changes), LIMITS)
    assert caught.value.param == param


def test_stop_strings_need_a_tokenizer() -> None:
    with pytest.raises(RequestError, match="tokenizer"):
        check_request(with_sampling(stop=("x",)), replace(LIMITS, has_tokenizer=False))


def test_too_long_has_a_code_of_its_own() -> None:
    with pytest.raises(RequestError) as caught:
        check_request(with_sampling(max_tokens=14), LIMITS)
    assert caught.value.code == "context_length_exceeded"
