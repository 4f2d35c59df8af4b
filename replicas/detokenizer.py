"""Turn tokens into text as they come, and find stop strings in it.

Knows a tokenizer only by what ``decode`` returns. What is passed on never changes later: the
pieces of a reply, joined, are what decoding all its tokens at once gives, however the tokens were
grouped. Engine and Ingress use the same classes, so that both stop at the same character.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from models.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
"""What decoders give for bytes that are no UTF-8; at the end of a text, perhaps not yet."""

LONGEST_WINDOW = 32
"""Tokens in the window from which on ways to shorten it are tried that cost a decode."""


@lru_cache(maxsize=8)
def _byte_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of byte-fallback tokens, ``<0x00>`` to ``<0xFF>``; none if it has none."""
    vocab = tokenizer.get_vocab()
    names = (f"<0x{byte:02X}>" for byte in range(256))
    return frozenset(vocab[name] for name in names if name in vocab)


@lru_cache(maxsize=8)
def _special_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that decoding skips."""
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(special.union(tokenizer.all_special_ids))


class IncrementalDetokenizer:
    """Text of a growing sequence of tokens.

    Only a window of the last tokens is decoded. It starts where a character starts and holds at
    least one visible token that was passed on before, so that a decoder that treats the start of a
    text in its own way (drops a space) treats that token so, and not a new one. Held back are a
    last character that may be half of one, and a run of byte-fallback tokens (decoders judge such a
    run as a whole). A push costs time in the number of its tokens, amortised.

    Args:
        tokenizer: Decodes.
        skip_special_tokens: Leave special tokens out of the text.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._byte_ids = _byte_ids(tokenizer)
        self._skipped_ids = _special_ids(tokenizer) if skip_special_tokens else frozenset()
        self._window: list[int] = []
        self._num_chars = 0  # of the window's text, already passed on
        self._boundary = 0  # in the window, where a later window may start
        self._longest = LONGEST_WINDOW

    def push(self, token_ids: Sequence[int]) -> str:
        """Append tokens and return the text that has become certain."""
        new = [i for i in token_ids if i not in self._skipped_ids]
        if not new:
            return ""
        self._window.extend(new)
        if new[-1] in self._byte_ids:
            return ""
        text = self._decode(self._window)
        is_whole = not text.endswith(REPLACEMENT)
        num_certain = len(text) if is_whole else len(text) - 1
        piece = text[self._num_chars : num_certain]
        self._num_chars = max(self._num_chars, num_certain)
        if is_whole and piece:
            self._advance()
        elif len(self._window) > self._longest:
            self._cut(text)
        return piece

    def flush(self) -> str:
        """Return the rest of the text; afterwards nothing may be pushed."""
        text = self._decode(self._window)
        piece = text[self._num_chars :]
        self._num_chars = len(text)
        return piece

    def _advance(self) -> None:
        """Start the window at the last boundary and remember this one."""
        if self._boundary:
            del self._window[: self._boundary]
            self._num_chars = len(self._decode(self._window))
        self._boundary = len(self._window)
        self._longest = LONGEST_WINDOW

    def _cut(self, text: str) -> None:
        """Shorten a window whose text has not ended in a whole character for long.

        A place is a boundary if both sides decode apart as they do together: had the left side
        ended within a character, the first byte of the right side would have told.
        """
        for start in range(len(self._window) - 1, len(self._window) - 9, -1):
            left, right = self._decode(self._window[:start]), self._decode(self._window[start:])
            if right and left + right == text:
                del self._window[:start]
                self._num_chars -= len(left)
                self._boundary = 0
                self._longest = LONGEST_WINDOW
                return
        self._longest = 2 * len(self._window)

    def _decode(self, token_ids: list[int]) -> str:
        text = self._tokenizer.decode(
            token_ids,
            skip_special_tokens=self._skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )
        return cast(str, text)


class Scanned(NamedTuple):
    """What a scanner made of a piece of text.

    Attributes:
        text: Text that is certain to be part of the reply.
        stop: The stop string that ended it, or None.
    """

    text: str
    stop: str | None


class StopScanner:
    """Finds the first stop string in a text that comes in pieces.

    The first is the one that is complete first; of several complete at the same character, the
    longest. So the result does not depend on how the text was cut into pieces. Text that may be the
    start of a stop string is held back.

    >>> scanner = StopScanner(("END",))
    >>> scanner.push("the E")
    Scanned(text='the ', stop=None)
    >>> scanner.push("ND of it")
    Scanned(text='', stop='END')

    Args:
        stop: The stop strings, none of them empty.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if not all(stop):
            raise ValueError(f"stop strings are not empty, got {list(stop)!r}")
        self._stop = tuple(stop)
        self._held = ""
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string found, or None."""
        return self._matched

    def push(self, text: str) -> Scanned:
        """Append text; return what is certain of it, and the stop string that ended it.

        After a match there is no more text: further pushes return the same match and nothing else.
        """
        if self._matched is not None:
            return Scanned("", self._matched)
        text = self._held + text
        matches = [(at + len(s), at, s) for s in self._stop if (at := text.find(s)) >= 0]
        if matches:
            _, start, self._matched = min(matches)
            self._held = ""
            return Scanned(text[:start], self._matched)
        num_held = max((_overlap(text, s) for s in self._stop), default=0)
        self._held = text[len(text) - num_held :]
        return Scanned(text[: len(text) - num_held], None)

    def flush(self) -> str:
        """Return the text held back, as the reply ended otherwise."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that is a proper start of ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
