"""Checks a request against what this Verifier can do, before any work starts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replicas.api import GenerationRequest
from replicas.errors import RequestError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a Verifier can do.

    Attributes:
        vocab_size: Token ids are below this.
        max_context: Longest prompt and reply together.
        cache_tokens: Tokens that the whole cache holds.
    """

    vocab_size: int
    max_context: int
    cache_tokens: int


def check_request(request: GenerationRequest, limits: Limits) -> None:
    """Check a request.

    Raises:
        RequestError: If it cannot be served; says what was wrong and what would be right.
    """
    sampling = request.sampling
    num_prompt = len(request.prompt_token_ids)
    if not num_prompt:
        raise RequestError("the prompt is empty; at least one token is needed", param="prompt")
    _check_ids(request.prompt_token_ids, limits, "prompt")
    _check_ids(request.resume_token_ids, limits, "resume_token_ids")
    _check_ids(tuple(sampling.logit_bias), limits, "logit_bias")
    _check_ids(sampling.stop_token_ids, limits, "stop_token_ids")
    if sampling.max_tokens < 1:
        raise RequestError(
            f"max_tokens must be at least 1, got {sampling.max_tokens}", param="max_tokens"
        )
    if sampling.min_tokens > sampling.max_tokens:
        raise RequestError(
            f"min_tokens ({sampling.min_tokens}) is above max_tokens ({sampling.max_tokens})",
            param="min_tokens",
        )
    if len(request.resume_token_ids) >= sampling.max_tokens:
        raise RequestError("the reply to resume is already complete", param="resume_token_ids")
    longest = min(limits.max_context, limits.cache_tokens)
    if num_prompt + sampling.max_tokens > longest:
        raise RequestError(
            f"prompt ({num_prompt} tokens) and max_tokens ({sampling.max_tokens}) exceed the "
            f"context of {longest} tokens",
            "context_length_exceeded",
            "max_tokens",
        )


def _check_ids(token_ids: Sequence[int], limits: Limits, param: str) -> None:
    wrong = next((i for i in token_ids if not 0 <= i < limits.vocab_size), None)
    if wrong is not None:
        raise RequestError(
            f"token id {wrong} is outside the vocabulary of {limits.vocab_size}", param=param
        )
