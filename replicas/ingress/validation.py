"""The rules on values: a checked shape becomes sampling parameters, or an error that names a field.

A parameter that cannot be honoured is refused, never ignored. Pure.
"""

from __future__ import annotations

from policy_service.api import SpeculationOptions
from replicas.api import SamplingParams
from replicas.ingress.errors import invalid
from replicas.ingress.limits import Limits
from replicas.ingress.schema import ChatBody, CompletionsBody, GenerationBody, Speculation
from replicas.ingress.token_rules import check_token_rules, logit_bias

MAX_TEMPERATURE = 2.0
MAX_PENALTY = 2.0
MAX_REPETITION_PENALTY = 10.0
MAX_STOPS = 16
MAX_STOP_CHARS = 256
DEFAULT_COMPLETION_TOKENS = 16
"""Reply length of a completions request that names none, as OpenAI has it."""


def check_request(body: GenerationBody, limits: Limits) -> None:
    """Check everything that does not depend on the prompt's length.

    Raises:
        ApiError: If a rule is broken.
    """
    _check_ranges(body)
    _check_choices(body, limits)
    _check_stop(body)
    _check_tokens(body, limits)
    check_token_rules(body, limits)
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options needs stream to be true", "stream_options")


def _check_range(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise invalid(f"{name} must be from {low:g} to {high:g}, got {value:g}", name)


def _check_ranges(body: GenerationBody) -> None:
    _check_range("temperature", body.temperature, 0, MAX_TEMPERATURE)
    _check_range("min_p", body.min_p, 0, 1)
    for name in ("presence_penalty", "frequency_penalty"):
        _check_range(name, getattr(body, name), -MAX_PENALTY, MAX_PENALTY)
    if body.top_p is not None and not 0 < body.top_p <= 1:
        raise invalid(f"top_p must be above 0 and at most 1, got {body.top_p:g}", "top_p")
    if body.top_k is not None and body.top_k < -1:
        raise invalid(f"top_k must be at least 1, or 0 or -1 for all, got {body.top_k}", "top_k")
    penalty = body.repetition_penalty
    if penalty is not None and not 0 < penalty <= MAX_REPETITION_PENALTY:
        raise invalid(
            f"repetition_penalty must be above 0 and at most {MAX_REPETITION_PENALTY:g}, "
            f"got {penalty:g}",
            "repetition_penalty",
        )
    if body.seed is not None and not -(2**63) <= body.seed < 2**64:
        raise invalid("seed must fit in 64 bits", "seed")


def _check_choices(body: GenerationBody, limits: Limits) -> None:
    n = 1 if body.n is None else body.n
    if not 1 <= n <= limits.max_choices:
        raise invalid(f"n must be from 1 to {limits.max_choices}, got {n}", "n")
    if n > 1 and body.temperature == 0:
        raise invalid("n above 1 with temperature 0 would repeat one reply", "n")


def _check_stop(body: GenerationBody) -> None:
    stop = stop_strings(body)
    if len(stop) > MAX_STOPS:
        raise invalid(f"stop takes at most {MAX_STOPS} strings, got {len(stop)}", "stop")
    if not all(stop):
        raise invalid("stop holds an empty string", "stop")
    if any(len(string) > MAX_STOP_CHARS for string in stop):
        raise invalid(f"a stop string has at most {MAX_STOP_CHARS} characters", "stop")


def _check_tokens(body: GenerationBody, limits: Limits) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        value = getattr(body, name, None)
        if value is not None and value < 1:
            raise invalid(f"{name} must be at least 1, got {value}", name)
    if body.min_tokens is not None and body.min_tokens < 0:
        raise invalid(f"min_tokens must not be negative, got {body.min_tokens}", "min_tokens")
    num_logprobs(body, limits)


def stop_strings(body: GenerationBody) -> tuple[str, ...]:
    """Return the stop strings, however they were given."""
    stop = body.stop
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def num_logprobs(body: GenerationBody, limits: Limits) -> int | None:
    """Return how many alternatives are asked for with each token; None if no logprobs are.

    Raises:
        ApiError: If there are too many, or chat's two fields contradict each other.
    """
    name, wanted = "logprobs", None
    if isinstance(body, CompletionsBody):
        wanted = body.logprobs
    elif isinstance(body, ChatBody):
        name = "top_logprobs"
        if body.top_logprobs is not None and not body.logprobs:
            raise invalid("top_logprobs needs logprobs to be true", "top_logprobs")
        wanted = (body.top_logprobs or 0) if body.logprobs else None
    if wanted is not None and not 0 <= wanted <= limits.max_logprobs:
        raise invalid(f"{name} must be from 0 to {limits.max_logprobs}, got {wanted}", name)
    return wanted


def reply_length(body: GenerationBody, num_prompt_tokens: int, limits: Limits) -> int:
    """Return the most tokens of the reply.

    Raises:
        ApiError: If prompt and reply do not fit in the context, or the two names for the length, or
            ``min_tokens``, contradict it.
    """
    name, wanted = _wanted_length(body)
    room = limits.context_length - num_prompt_tokens
    if room < 1 or (wanted or 0) > room:
        field = name if room >= 1 else ("messages" if isinstance(body, ChatBody) else "prompt")
        asked = "" if wanted is None else f" and {name} ({wanted})"
        raise invalid(
            f"the prompt ({num_prompt_tokens} tokens){asked} exceeds the context of "
            f"{limits.context_length} tokens, reply included",
            field,
            "context_length_exceeded",
        )
    length = min(limits.default_max_tokens, room) if wanted is None else wanted
    if (body.min_tokens or 0) > length:
        raise invalid(f"min_tokens ({body.min_tokens}) exceeds {name} ({length})", "min_tokens")
    return length


def _wanted_length(body: GenerationBody) -> tuple[str, int | None]:
    newer = getattr(body, "max_completion_tokens", None)
    if newer is not None and body.max_tokens not in (None, newer):
        raise invalid("max_tokens and max_completion_tokens differ; give one", "max_tokens")
    if newer is not None:
        return "max_completion_tokens", newer
    if body.max_tokens is None and isinstance(body, CompletionsBody):
        return "max_tokens", DEFAULT_COMPLETION_TOKENS
    return "max_tokens", body.max_tokens


def sampling_params(
    body: GenerationBody,
    max_tokens: int,
    limits: Limits,
    banned_sequences: tuple[tuple[int, ...], ...] = (),
) -> SamplingParams:
    """Return a checked request's sampling parameters, defaults filled in.

    Args:
        body: The request.
        max_tokens: Of ``reply_length``.
        limits: What the server allows.
        banned_sequences: The tokens of its ``bad_words``.
    """
    given = {
        name: getattr(body, name)
        for name in (
            "temperature",
            "top_p",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "ignore_eos",
            "min_tokens",
        )
        if getattr(body, name) is not None
    }
    allowed = None if body.allowed_token_ids is None else tuple(body.allowed_token_ids)
    return SamplingParams(
        max_tokens=max_tokens,
        top_k=max(0, body.top_k or 0),
        logit_bias=logit_bias(body, limits),
        allowed_token_ids=allowed,
        banned_token_ids=tuple(body.banned_token_ids or ()),
        banned_sequences=banned_sequences,
        stop=stop_strings(body),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        logprobs=num_logprobs(body, limits),
        **given,
    )


def speculation_options(given: Speculation | None) -> SpeculationOptions:
    """Return what a request says about speculation, defaults filled in."""
    if given is None:
        return SpeculationOptions()
    return SpeculationOptions(
        mode=given.mode or "auto",
        drafter=given.drafter,
        gamma=given.gamma,
        learner=given.learner,
        explain=bool(given.explain),
    )
