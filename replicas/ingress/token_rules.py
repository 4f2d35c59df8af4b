"""The rules on fields that name tokens: bias, what may come and what may not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.tokenizer import Tokenizer
from replicas.ingress.errors import invalid
from replicas.ingress.limits import Limits
from replicas.ingress.schema import GenerationBody

MAX_LOGIT_BIAS = 100.0
MAX_BIASED_TOKENS = 1024
MAX_STOP_TOKENS = 64
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARS = 256


def check_token_rules(body: GenerationBody, limits: Limits) -> None:
    """Check the fields that name tokens.

    That some token may come at every row is checked by the Verifier, which knows the model's ends.

    Raises:
        ApiError: If a rule is broken.
    """
    logit_bias(body, limits)
    _check_stop_tokens(body, limits)
    _check_allowed(body, limits)
    _check_bad_words(body.bad_words or ())


def check_token_ids(token_ids: Sequence[int], limits: Limits, param: str) -> None:
    """Check that every id is one of a token.

    Raises:
        ApiError: If one is not.
    """
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < limits.vocab_size:
        raise invalid(f"{param} holds an id that is not from 0 to {limits.vocab_size - 1}", param)


def logit_bias(body: GenerationBody, limits: Limits) -> Mapping[int, float]:
    """Return the bias of each token id.

    Raises:
        ApiError: If a key is no token id, a value is out of range, or there are too many.
    """
    given = body.logit_bias or {}
    if len(given) > MAX_BIASED_TOKENS:
        raise invalid(
            f"logit_bias takes at most {MAX_BIASED_TOKENS} tokens, got {len(given)}", "logit_bias"
        )
    bias = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdecimal() and len(key) < 12):
            raise invalid("logit_bias has a key that is not a token id", "logit_bias")
        if abs(value) > MAX_LOGIT_BIAS:
            raise invalid("logit_bias has a value outside [-100, 100]", "logit_bias")
        bias[int(key)] = value
    check_token_ids(list(bias), limits, "logit_bias")
    return bias


def _check_stop_tokens(body: GenerationBody, limits: Limits) -> None:
    ids = body.stop_token_ids or []
    if len(ids) > MAX_STOP_TOKENS:
        raise invalid(f"at most {MAX_STOP_TOKENS} stop_token_ids, got {len(ids)}", "stop_token_ids")
    check_token_ids(ids, limits, "stop_token_ids")


def _check_allowed(body: GenerationBody, limits: Limits) -> None:
    allowed, banned = body.allowed_token_ids, body.banned_token_ids or []
    check_token_ids(allowed or [], limits, "allowed_token_ids")
    check_token_ids(banned, limits, "banned_token_ids")
    if allowed is not None and not allowed:
        raise invalid(
            "allowed_token_ids is empty; leave it out to allow all tokens", "allowed_token_ids"
        )
    if allowed and set(allowed) <= set(banned):
        raise invalid(
            "every one of allowed_token_ids is in banned_token_ids too", "allowed_token_ids"
        )


def _check_bad_words(words: Sequence[str]) -> None:
    if len(words) > MAX_BAD_WORDS:
        raise invalid(f"at most {MAX_BAD_WORDS} bad_words, got {len(words)}", "bad_words")
    if not all(words):
        raise invalid("bad_words holds an empty string", "bad_words")
    if any(len(word) > MAX_BAD_WORD_CHARS for word in words):
        raise invalid(f"a bad word has at most {MAX_BAD_WORD_CHARS} characters", "bad_words")


def bad_word_sequences(tokenizer: Tokenizer, body: GenerationBody) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences of ``bad_words``, each with and without a space before it.

    Only the spellings that the tokenizer itself would use: a model that spells a word with other
    tokens gets past.
    """
    sequences = {
        tuple(tokenizer.encode(spelling, add_special_tokens=False))
        for word in body.bad_words or ()
        for spelling in _spellings(word)
    }
    return tuple(sorted(sequence for sequence in sequences if sequence))


def _spellings(word: str) -> tuple[str, ...]:
    bare = word.lstrip(" ")
    return (bare, f" {bare}") if bare else (word,)
