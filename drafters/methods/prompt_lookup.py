"""Prompt lookup: propose what followed the last few tokens the last time they occurred.

Source: prompt lookup decoding (PLD, ``apoorvumang/prompt-lookup-decoding``; in vLLM the method
``ngram``). The longest suffix of ``max_ngram`` down to ``min_ngram`` tokens that occurs earlier in
prompt or output is looked up, and the tokens after that occurrence are the draft, a chain.

Two things differ from the original. The search is an index kept up to date as tokens come, so a
draft costs O(max_ngram + draft) whatever the length of the context (the original scans it). And
where the occurrence is so near the end that fewer tokens follow than may be drafted, the copy goes
on with the draft itself: the text is taken to repeat with that period. The original drops such
matches; text that loops then gets no drafts.

Knows neither models nor other drafters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from drafters.api import EMPTY_DRAFT, Draft, SessionContext, chain
from drafters.open_sessions import OpenSessions
from drafters.parameters import check_choice, check_whole

_NAME = "prompt_lookup"

Match = Literal["recent", "earliest"]


class _Index:
    """One session's tokens and, for each n-gram in them, where the tokens after it begin.

    An n-gram is entered once a token follows it, so the suffix never finds itself.
    """

    __slots__ = ("_follows", "_lengths", "_recent", "token_ids")

    def __init__(self, lengths: range, recent: bool) -> None:
        self.token_ids: list[int] = []
        self._lengths = lengths
        self._recent = recent
        self._follows: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in lengths}

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens; O(1) amortised for each."""
        old_length = len(self.token_ids)
        self.token_ids.extend(token_ids)
        length = len(self.token_ids)
        for ngram, follows in self._follows.items():
            first = max(old_length, ngram)
            if first >= length:
                continue
            starts = (self.token_ids[first - ngram + i : length - ngram + i] for i in range(ngram))
            entries = zip(zip(*starts, strict=True), range(first, length), strict=True)
            self._enter(follows, entries)

    def _enter(
        self, follows: dict[tuple[int, ...], int], entries: Iterable[tuple[tuple[int, ...], int]]
    ) -> None:
        if self._recent:
            follows.update(entries)
            return
        for ngram, position in entries:
            follows.setdefault(ngram, position)

    def longest_match(self) -> tuple[int, int]:
        """Return (length of the longest suffix found, where its continuation begins), or (0, 0)."""
        for ngram in self._lengths:
            if ngram > len(self.token_ids):
                continue
            position = self._follows[ngram].get(tuple(self.token_ids[-ngram:]))
            if position is not None:
                return ngram, position
        return 0, 0

    def copy_from(self, position: int, num_tokens: int) -> list[int]:
        """Return ``num_tokens`` from ``position`` on, repeated where the context ends."""
        tokens = self.token_ids[position : position + num_tokens]
        period = len(tokens)
        repeats = -(-num_tokens // period)
        return (tokens * repeats)[:num_tokens]


class PromptLookup:
    """Proposes the continuation of an earlier occurrence of the last tokens.

    The score of a draft is the length of the match, ``min_ngram`` to ``max_ngram``.

    Args:
        max_ngram: Longest suffix looked up, at least 1 (published default 3).
        min_ngram: Shortest suffix looked up, 1 to ``max_ngram`` (published default 1).
        match: Which earlier occurrence counts: the ``recent`` one, or the ``earliest`` as
            published.
        max_tokens: Largest draft, at least 1.

    Raises:
        DrafterConfigError: If a value cannot be.
    """

    def __init__(
        self,
        *,
        max_ngram: int = 3,
        min_ngram: int = 1,
        match: Match = "recent",
        max_tokens: int = 64,
    ) -> None:
        check_whole(_NAME, "min_ngram", min_ngram, 1)
        check_whole(_NAME, "max_ngram", max_ngram, min_ngram)
        check_whole(_NAME, "max_tokens", max_tokens, 1)
        check_choice(_NAME, "match", match, get_args(Match))
        self._lengths = range(max_ngram, min_ngram - 1, -1)
        self._match: Match = match
        self._max_tokens = max_tokens
        self._sessions = OpenSessions[_Index]()

    @property
    def version(self) -> str:
        """Changes whenever the method's proposals may."""
        return (
            f"prompt_lookup/1(max_ngram={self._lengths[0]},min_ngram={self._lengths[-1]},"
            f"match={self._match},max_tokens={self._max_tokens})"
        )

    @property
    def max_tokens(self) -> int:
        """Largest draft the method makes."""
        return self._max_tokens

    def open(self, session_id: str, context: SessionContext) -> None:
        """Start the session, or start it anew, from the whole context."""
        index = _Index(self._lengths, self._match == "recent")
        index.extend(context.token_ids)
        self._sessions[session_id] = index

    def position(self, session_id: str) -> int:
        """Return the length of the session's context; 0 if the session is unknown."""
        index = self._sessions.get(session_id)
        return len(index.token_ids) if index else 0

    def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
        """Append emitted tokens to a session.

        Raises:
            UnknownSessionError: If the session is not open.
        """
        self._sessions[session_id].extend(token_ids)

    def propose(self, wanted: Sequence[tuple[str, int]]) -> list[Draft]:
        """Propose for each (session, most tokens) a chain of at most that many tokens.

        A chain is empty or, by periodic continuation, as long as allowed.

        Raises:
            UnknownSessionError: If a session is not open.
        """
        return [self._propose(self._sessions[session_id], most) for session_id, most in wanted]

    def close(self, session_id: str) -> None:
        """Forget a session; unknown ones are no error."""
        self._sessions.pop(session_id, None)

    def _propose(self, index: _Index, most: int) -> Draft:
        ngram, position = index.longest_match()
        num_tokens = min(most, self._max_tokens)
        if ngram == 0 or num_tokens < 1:
            return EMPTY_DRAFT
        return chain(index.copy_from(position, num_tokens), score=float(ngram))


DRAFTER = PromptLookup
