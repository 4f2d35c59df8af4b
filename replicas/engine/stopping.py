"""When a reply ends: by token, by string, by length, in this order, one token at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from models.tokenizer import Tokenizer
from replicas.api import FinishReason, SamplingParams
from replicas.detokenizer import IncrementalDetokenizer, StopScanner


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a reply ended.

    Attributes:
        finish_reason: ``stop`` or ``length``.
        stop_reason: The stop string or token id; None for end of sequence or length.
        num_text_tokens: How many of its tokens may appear in the text.
    """

    finish_reason: FinishReason
    stop_reason: str | int | None
    num_text_tokens: int


def end_token_ids(params: SamplingParams, eos_token_ids: Collection[int]) -> frozenset[int]:
    """Return the tokens that end a reply."""
    eos: Collection[int] = () if params.ignore_eos else eos_token_ids
    return frozenset(eos) | frozenset(params.stop_token_ids)


class StopRules:
    """Watches one reply for its end.

    A stop beats the length limit where both hold at the same token.

    Args:
        params: The request's parameters.
        eos_token_ids: The model's end-of-sequence tokens.
        tokenizer: Needed only if there are stop strings.
    """

    def __init__(
        self,
        params: SamplingParams,
        eos_token_ids: Collection[int],
        tokenizer: Tokenizer | None,
    ) -> None:
        self._params = params
        self._ends = end_token_ids(params, eos_token_ids)
        self._num_emitted = 0
        self._scanner: StopScanner | None = None
        self._detokenizer: IncrementalDetokenizer | None = None
        if params.stop:
            if tokenizer is None:
                raise ValueError("stop strings need a tokenizer")
            self._scanner = StopScanner(params.stop)
            self._detokenizer = IncrementalDetokenizer(tokenizer)

    @property
    def num_left(self) -> int:
        """Tokens that may still be emitted before the length limit."""
        return self._params.max_tokens - self._num_emitted

    def emit(self, token_id: int) -> Stop | None:
        """Record an emitted token; return why the reply ends with it, or None if it does not."""
        self._num_emitted += 1
        num_emitted = self._num_emitted
        if token_id in self._ends:
            named = token_id if token_id in self._params.stop_token_ids else None
            return Stop("stop", named, num_emitted - 1)
        if self._scanner is not None and self._detokenizer is not None:
            found = self._scanner.push(self._detokenizer.push([token_id]))
            if found.stop is not None:
                return Stop("stop", found.stop, num_emitted)
        if num_emitted >= self._params.max_tokens:
            return Stop("length", None, num_emitted)
        return None
