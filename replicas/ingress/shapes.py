"""How a choice looks in a response: chat messages and plain completions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from models.tokenizer import Tokenizer
from replicas.detokenizer import REPLACEMENT
from replicas.ingress.reply import Piece, ReplyToken

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON does not have; OpenAI's own stand-in."""


class Shape(Protocol):
    """One route's objects."""

    @property
    def id_prefix(self) -> str:
        """Start of a response's id."""

    @property
    def object_name(self) -> str:
        """The ``object`` of a whole response."""

    @property
    def chunk_object_name(self) -> str:
        """The ``object`` of a chunk of a stream."""

    def whole(self, text: str, tokens: Sequence[ReplyToken]) -> dict[str, Any]:
        """Return a whole choice, less its index and finish reason."""

    def opening(self) -> dict[str, Any] | None:
        """Return what a stream says of a choice before its text, or None."""

    def delta(self, piece: Piece) -> dict[str, Any]:
        """Return what a stream says of a choice when there is more of it."""

    def closing(self) -> dict[str, Any]:
        """Return what a stream says of a choice with its finish reason."""


class _TokenNames:
    """The texts of single tokens, as logprobs show them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, token_id: int) -> str:
        return cast(str, self._tokenizer.decode([token_id], clean_up_tokenization_spaces=False))


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST_LOGPROB)


class ChatShape:
    """``chat.completion`` and its chunks."""

    id_prefix = "chatcmpl-"
    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, has_logprobs: bool) -> None:
        self._name = _TokenNames(tokenizer)
        self._has_logprobs = has_logprobs

    def whole(self, text: str, tokens: Sequence[ReplyToken]) -> dict[str, Any]:
        """Return a whole choice, less its index and finish reason."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"message": message, "logprobs": self._logprobs(tokens)}

    def opening(self) -> dict[str, Any] | None:
        """Return the role, which comes before any text."""
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def delta(self, piece: Piece) -> dict[str, Any]:
        """Return more text."""
        return {"delta": {"content": piece.text}, "logprobs": self._logprobs(piece.tokens)}

    def closing(self) -> dict[str, Any]:
        """Return an empty delta."""
        return {"delta": {}, "logprobs": None}

    def _logprobs(self, tokens: Sequence[ReplyToken]) -> dict[str, Any] | None:
        if not self._has_logprobs:
            return None
        return {"content": [self._entry(token) for token in tokens], "refusal": None}

    def _entry(self, token: ReplyToken) -> dict[str, Any]:
        logprobs = token.logprobs
        own = LOWEST_LOGPROB if logprobs is None else logprobs.logprob
        top = () if logprobs is None else logprobs.top
        others = [self._alternative(token_id, logprob) for token_id, logprob in top]
        return {**self._alternative(token.token_id, own), "top_logprobs": others}

    def _alternative(self, token_id: int, logprob: float) -> dict[str, Any]:
        name = self._name(token_id)
        utf8 = None if REPLACEMENT in name else list(name.encode())
        return {"token": name, "logprob": _finite(logprob), "bytes": utf8}


class CompletionsShape:
    """``text_completion`` and its chunks."""

    id_prefix = "cmpl-"
    object_name = "text_completion"
    chunk_object_name = "text_completion"

    def __init__(self, tokenizer: Tokenizer, has_logprobs: bool) -> None:
        self._name = _TokenNames(tokenizer)
        self._has_logprobs = has_logprobs

    def whole(self, text: str, tokens: Sequence[ReplyToken]) -> dict[str, Any]:
        """Return a whole choice, less its index and finish reason."""
        return {"text": text, "logprobs": self._logprobs(tokens)}

    def opening(self) -> dict[str, Any] | None:
        """Return None: text comes first."""
        return None

    def delta(self, piece: Piece) -> dict[str, Any]:
        """Return more text."""
        return self.whole(piece.text, piece.tokens)

    def closing(self) -> dict[str, Any]:
        """Return empty text."""
        return {"text": "", "logprobs": None}

    def _logprobs(self, tokens: Sequence[ReplyToken]) -> dict[str, Any] | None:
        if not self._has_logprobs:
            return None
        return {
            "tokens": [self._name(token.token_id) for token in tokens],
            "token_logprobs": [self._own(token) for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": [token.offset for token in tokens],
        }

    def _own(self, token: ReplyToken) -> float | None:
        return None if token.logprobs is None else _finite(token.logprobs.logprob)

    def _top(self, token: ReplyToken) -> dict[str, float]:
        """Return the alternatives and the token itself, as OpenAI does."""
        if token.logprobs is None:
            return {}
        top = {self._name(token_id): _finite(p) for token_id, p in reversed(token.logprobs.top)}
        own = self._name(token.token_id)
        return {own: _finite(token.logprobs.logprob), **top}
