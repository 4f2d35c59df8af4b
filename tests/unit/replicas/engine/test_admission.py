from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replicas.api import GenerationRequest, SamplingParams
from replicas.engine.admission import Limits, check_request
from replicas.errors import RequestError

LIMITS = Limits(vocab_size=10, max_context=20, cache_tokens=16)
GOOD = GenerationRequest("r", (1, 2, 3), SamplingParams(max_tokens=8), seed=0)


def with_sampling(**changes: Any) -> GenerationRequest:
    return replace(GOOD, sampling=replace(GOOD.sampling, **changes))


def test_a_good_request_passes() -> None:
    check_request(GOOD, LIMITS)
    check_request(with_sampling(max_tokens=13), LIMITS)


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
        (with_sampling(max_tokens=0), "max_tokens", "at least 1"),
        (with_sampling(min_tokens=9), "min_tokens", r"\(9\) is above max_tokens \(8\)"),
        (with_sampling(max_tokens=14), "max_tokens", "context of 16 tokens"),
    ],
)
def test_what_is_wrong_is_said(request_: GenerationRequest, param: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        check_request(request_, LIMITS)
    assert caught.value.param == param


def test_too_long_has_a_code_of_its_own() -> None:
    with pytest.raises(RequestError) as caught:
        check_request(with_sampling(max_tokens=14), LIMITS)
    assert caught.value.code == "context_length_exceeded"
