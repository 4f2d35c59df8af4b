"""Checks a request against what this Verifier can do, before any work starts. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from replicas.api import GenerationRequest, SamplingParams
from replicas.engine.stopping import end_token_ids
from replicas.errors import RequestError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a Verifier can do.

    Attributes:
        vocab_size: Token ids are below this.
        max_context: Longest prompt and reply together.
        cache_tokens: Tokens that the whole cache holds.
        eos_token_ids: The model's ends of sequence.
        has_tokenizer: Whether text can be looked at; stop strings need it.
    """

    vocab_size: int
    max_context: int
    cache_tokens: int
    eos_token_ids: frozenset[int] = frozenset()
    has_tokenizer: bool = True


def check_request(request: GenerationRequest, limits: Limits) -> None:
    """Check a request.

    What passes gives at every row at least one token that may come, and raises nothing later.

    Raises:
        RequestError: If it cannot be served; says what was wrong and what would be right.
    """
    sampling = request.sampling
    if not request.prompt_token_ids:
        raise RequestError("the prompt is empty; at least one token is needed", param="prompt")
    for param, token_ids in _named_ids(request):
        _check_ids(token_ids, limits, param)
    _check_values(sampling)
    _check_stop(sampling, limits)
    _check_some_token_may_come(sampling, limits)
    _check_lengths(request, limits)


def _named_ids(request: GenerationRequest) -> Iterator[tuple[str, Collection[int]]]:
    sampling = request.sampling
    yield "prompt", request.prompt_token_ids
    yield "resume_token_ids", request.resume_token_ids
    yield "logit_bias", sampling.logit_bias
    yield "stop_token_ids", sampling.stop_token_ids
    yield "allowed_token_ids", sampling.allowed_token_ids or ()
    yield "banned_token_ids", sampling.banned_token_ids
    yield "bad_words", [token for sequence in sampling.banned_sequences for token in sequence]


def _check_ids(token_ids: Collection[int], limits: Limits, param: str) -> None:
    wrong = next((i for i in token_ids if not 0 <= i < limits.vocab_size), None)
    if wrong is not None:
        raise RequestError(
            f"token id {wrong} is outside the vocabulary of {limits.vocab_size}", param=param
        )


def _check_values(sampling: SamplingParams) -> None:
    """Check that numbers are such that the arithmetic works; HTTP's own limits are narrower."""
    infinity = math.inf
    finite = [sampling.presence_penalty, sampling.frequency_penalty, *sampling.logit_bias.values()]
    rules = (
        ("temperature", 0 <= sampling.temperature < infinity, "at least 0"),
        ("top_p", 0 < sampling.top_p <= 1, "above 0 and at most 1"),
        ("top_k", sampling.top_k >= 0, "at least 0"),
        ("min_p", 0 <= sampling.min_p <= 1, "from 0 to 1"),
        ("repetition_penalty", 0 < sampling.repetition_penalty < infinity, "above 0"),
        ("min_tokens", sampling.min_tokens >= 0, "at least 0"),
        ("max_tokens", sampling.max_tokens >= 1, "at least 1"),
        ("logprobs", (sampling.logprobs or 0) >= 0, "at least 0"),
    )
    for name, is_right, rule in rules:
        if not is_right:
            raise RequestError(f"{name} must be {rule}, got {getattr(sampling, name)}", param=name)
    if not all(map(math.isfinite, finite)):
        raise RequestError("penalties and logit_bias must be finite numbers", param="logit_bias")


def _check_stop(sampling: SamplingParams, limits: Limits) -> None:
    if not all(sampling.stop):
        raise RequestError("stop holds an empty string", param="stop")
    if sampling.stop and not limits.has_tokenizer:
        raise RequestError("stop strings need a tokenizer, and this model has none", param="stop")


def _check_some_token_may_come(sampling: SamplingParams, limits: Limits) -> None:
    """Check that what is banned at any row leaves a token, even if all of it were banned at one."""
    allowed = sampling.allowed_token_ids
    if allowed is not None and not allowed:
        raise RequestError(
            "allowed_token_ids is empty; without it all tokens are allowed",
            param="allowed_token_ids",
        )
    if not all(sampling.banned_sequences):
        raise RequestError("a banned sequence has no tokens", param="bad_words")
    banned = {*sampling.banned_token_ids, *(last for *_, last in sampling.banned_sequences)}
    if sampling.min_tokens:
        banned |= end_token_ids(sampling, limits.eos_token_ids)
    is_any_left = len(banned) < limits.vocab_size if allowed is None else set(allowed) - banned
    if not is_any_left:
        which = "tokens" if allowed is None else "allowed tokens"
        raise RequestError(
            f"all {which} may be banned at once, by banned_token_ids, as the last of bad_words or, "
            f"before min_tokens, as ends of the reply; one must be left",
            param="banned_token_ids" if allowed is None else "allowed_token_ids",
        )


def _check_lengths(request: GenerationRequest, limits: Limits) -> None:
    sampling, num_prompt = request.sampling, len(request.prompt_token_ids)
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
