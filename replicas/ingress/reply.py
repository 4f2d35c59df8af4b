"""The text of one reply, from its tokens as they come. Pure.

Text is passed on only once it is certain that no stop string or stop token takes it back, and a
token is passed on with the first of its text, so ids, logprobs and text always end together.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from models.tokenizer import Tokenizer
from replicas.api import (
    FinishReason,
    GenerationResult,
    SamplingParams,
    TokenChunk,
    TokenLogprobs,
)
from replicas.detokenizer import IncrementalDetokenizer, StopScanner


@dataclass(frozen=True, slots=True)
class ReplyToken:
    """A token whose text is certain.

    Attributes:
        token_id: The token.
        offset: Where its text starts in the reply's text.
        logprobs: What the target thought of it, if that was asked for.
    """

    token_id: int
    offset: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Piece:
    """What became certain of a reply.

    Attributes:
        text: More text.
        tokens: Tokens whose text this is, or began in it.
    """

    text: str
    tokens: tuple[ReplyToken, ...]

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why and how a reply ended.

    Attributes:
        finish_reason: ``stop`` or ``length``.
        stop_reason: The stop string or token id, or None.
    """

    finish_reason: FinishReason
    stop_reason: str | int | None


class Reply:
    """Builds one reply's text. Feed it every token once, in order.

    Args:
        tokenizer: Decodes.
        sampling: The stop strings and stop tokens are taken from it.
    """

    def __init__(self, tokenizer: Tokenizer, sampling: SamplingParams) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._scanner = StopScanner(sampling.stop)
        self._stop_token_ids = frozenset(sampling.stop_token_ids)
        self._waiting: list[ReplyToken] = []
        self._deferred: list[tuple[int, TokenLogprobs | None]] = []
        self._num_tokens = 0
        self._num_decoded_chars = 0
        self._num_certain_chars = 0

    @property
    def num_tokens(self) -> int:
        """Tokens fed so far, whether their text is certain or not."""
        return self._num_tokens + len(self._deferred)

    def add(self, chunk: TokenChunk) -> Piece:
        """Append the next tokens."""
        text = ""
        for token_id, logprobs in zip_longest(chunk.token_ids, chunk.logprobs):
            text += self._take_deferred()
            if token_id in self._stop_token_ids:
                self._deferred.append((token_id, logprobs))
            else:
                text += self._push(token_id, logprobs)
        return self._release(text)

    def finish(self, result: GenerationResult) -> tuple[Piece, Ending]:
        """Give back what was held, now that the reply has ended and all tokens were fed."""
        text = ""
        if self.num_tokens <= result.num_text_tokens:
            text += self._take_deferred()
        text += self._scan(self._detokenizer.flush()) + self._scanner.flush()
        num_left = max(0, result.num_text_tokens - self._num_tokens + len(self._waiting))
        piece = self._release(text)
        if self._scanner.matched is not None:
            return _cut(piece, num_left), Ending("stop", self._scanner.matched)
        rest = Piece(piece.text, piece.tokens + tuple(self._waiting))
        return _cut(rest, num_left), Ending(result.finish_reason, result.stop_reason)

    def _take_deferred(self) -> str:
        """Accept that a token that might have been the last was not."""
        deferred, self._deferred = self._deferred, []
        return "".join(self._push(token_id, logprobs) for token_id, logprobs in deferred)

    def _push(self, token_id: int, logprobs: TokenLogprobs | None) -> str:
        self._waiting.append(ReplyToken(token_id, self._num_decoded_chars, logprobs))
        self._num_tokens += 1
        return self._scan(self._detokenizer.push([token_id]))

    def _scan(self, text: str) -> str:
        self._num_decoded_chars += len(text)
        return self._scanner.push(text).text

    def _release(self, text: str) -> Piece:
        self._num_certain_chars += len(text)
        count = 0
        for token in self._waiting:
            if token.offset >= self._num_certain_chars:
                break
            count += 1
        released = tuple(self._waiting[:count])
        del self._waiting[:count]
        return Piece(text, released)


def _cut(piece: Piece, num_tokens: int) -> Piece:
    """Leave out tokens that are not text, such as the end of sequence."""
    return Piece(piece.text, piece.tokens[:num_tokens])
