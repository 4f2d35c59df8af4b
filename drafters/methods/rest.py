"""REST: propose what followed the last few tokens in a corpus.

Source: He et al. 2023, "REST: Retrieval-Based Speculative Decoding", arXiv 2311.08252. The longest
ending of the context that occurs in the datastore, of ``max_ngram`` down to ``min_ngram`` tokens,
is looked up. What follows at its occurrences goes into a trie that counts how often each prefix
occurs, and the trie's most frequent nodes are the draft, a tree.

Three things differ from the original. An occurrence that ends its document is none, as it
proposes nothing; a shorter ending may then be found that does. Of more occurrences than are looked
at an even selection is taken, where the original takes the first ones in lexicographic order, which
are those with the lowest token ids. And nothing is padded: without a match the draft is empty.

A lookup is a search in a memory-mapped suffix array and reads one place of the corpus for each
occurrence; it never scans. Knows neither models nor other drafters. The datastore is built by
``banditserve datastore build``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from drafters.api import EMPTY_DRAFT, Draft, SessionContext, TargetInfo, chain
from drafters.datastore.header import check_compatible
from drafters.datastore.store import Datastore
from drafters.datastore.tries import best_chain, best_tree
from drafters.errors import DatastoreError, DrafterConfigError
from drafters.open_sessions import OpenSessions
from drafters.parameters import check_choice, check_whole

_NAME = "rest"

Shape = Literal["tree", "chain"]


@dataclass(slots=True)
class _Session:
    """The end of one session's context, as long as matches can be, and the length of all of it."""

    length: int
    tail: list[int]

    def extend(self, token_ids: Sequence[int], max_ngram: int) -> None:
        self.length += len(token_ids)
        self.tail = [*self.tail, *token_ids[-max_ngram:]][-max_ngram:]


class Rest:
    """Proposes the most frequent continuations of the last tokens in a datastore.

    The score of a draft is the length of the match, ``min_ngram`` to ``max_ngram``.

    Args:
        datastore: Path of the datastore, absolute, the same on every node that drafts.
        max_ngram: Longest ending looked up, at least ``min_ngram`` (published default 16).
        min_ngram: Shortest ending looked up, at least 1 (published default 2).
        max_occurrences: Most occurrences whose continuations are counted, at least 1 (published
            default 5000; chosen evenly, 1000 had as many tokens accepted on a million tokens of
            code, in about half the time where there were more, and each may be a read from disk).
        continuation: Tokens looked at after each occurrence, so the depth of the tree and the
            longest chain, at least 1 (published default 10).
        max_tokens: Largest draft, at least 1 (published default 64).
        shape: ``tree`` as published, or ``chain``: the most frequent next token each time.

    Raises:
        DatastoreError: If the datastore cannot be read, or is corrupt.
        DrafterConfigError: If a value cannot be.
    """

    def __init__(
        self,
        *,
        datastore: str,
        max_ngram: int = 16,
        min_ngram: int = 2,
        max_occurrences: int = 1000,
        continuation: int = 10,
        max_tokens: int = 64,
        shape: Shape = "tree",
    ) -> None:
        check_whole(_NAME, "min_ngram", min_ngram, 1)
        check_whole(_NAME, "max_ngram", max_ngram, min_ngram)
        check_whole(_NAME, "max_occurrences", max_occurrences, 1)
        check_whole(_NAME, "continuation", continuation, 1)
        check_whole(_NAME, "max_tokens", max_tokens, 1)
        check_choice(_NAME, "shape", shape, get_args(Shape))
        self._datastore = _open(datastore)
        most_sorted = self._datastore.header.sort_depth - 1
        if max_ngram > most_sorted:
            raise DrafterConfigError(
                f"rest: max_ngram is at most {most_sorted} with this datastore, got {max_ngram}"
            )
        self._max_ngram, self._min_ngram = max_ngram, min_ngram
        self._max_occurrences, self._continuation = max_occurrences, continuation
        self._shape: Shape = shape
        self._max_tokens = min(max_tokens, continuation) if shape == "chain" else max_tokens
        self._sessions = OpenSessions[_Session]()

    @property
    def version(self) -> str:
        """Changes whenever the method's proposals may, and with the datastore's content."""
        return (
            f"rest/1(datastore={self._datastore.header.checksum[:16]},"
            f"max_ngram={self._max_ngram},min_ngram={self._min_ngram},"
            f"max_occurrences={self._max_occurrences},continuation={self._continuation},"
            f"max_tokens={self._max_tokens},shape={self._shape})"
        )

    @property
    def max_tokens(self) -> int:
        """Largest draft the method makes."""
        return self._max_tokens

    def open(self, session_id: str, context: SessionContext) -> None:
        """Start the session, or start it anew, from the whole context."""
        session = _Session(0, [])
        session.extend(context.token_ids, self._max_ngram)
        self._sessions[session_id] = session

    def position(self, session_id: str) -> int:
        """Return the length of the session's context; 0 if the session is unknown."""
        session = self._sessions.get(session_id)
        return session.length if session else 0

    def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
        """Append emitted tokens to a session.

        Raises:
            UnknownSessionError: If the session is not open.
        """
        self._sessions[session_id].extend(token_ids, self._max_ngram)

    def propose(self, wanted: Sequence[tuple[str, int]]) -> list[Draft]:
        """Propose for each (session, most tokens) a tree or chain of at most that many tokens.

        Raises:
            UnknownSessionError: If a session is not open.
        """
        return [self._propose(self._sessions[session_id], most) for session_id, most in wanted]

    def close(self, session_id: str) -> None:
        """Forget a session; unknown ones are no error."""
        self._sessions.pop(session_id, None)

    def check_target(self, target: TargetInfo) -> None:
        """Check that the datastore's token ids are the target's.

        Raises:
            DatastoreError: If not.
        """
        header = self._datastore.header
        check_compatible(header, target.tokenizer_fingerprint, target.vocab_size)

    def _propose(self, session: _Session, most: int) -> Draft:
        most = min(most, self._max_tokens)
        match = self._datastore.longest_match(session.tail, self._min_ngram)
        if match.length == 0 or most < 1:
            return EMPTY_DRAFT
        depth = min(most, self._continuation)
        continuations = self._datastore.continuations(match, depth, self._max_occurrences)
        score, separator = float(match.length), self._datastore.separator
        if self._shape == "chain":
            return chain(best_chain(continuations, separator), score)
        token_ids, parents = best_tree(continuations, separator, most)
        return Draft(tuple(token_ids), tuple(parents), score)


def check(params: Mapping[str, Any], target: TargetInfo) -> None:
    """Check before deploying that the drafter can be made and its datastore fits the target.

    Raises:
        DrafterConfigError: If not.
    """
    drafter = Rest(**params)
    try:
        drafter.check_target(target)
    except DatastoreError as error:
        raise DatastoreError(
            f"rest: {params['datastore']} does not fit the model {target.model_name}: {error}"
        ) from error


def _open(path: Any) -> Datastore:
    if not isinstance(path, str) or not Path(path).expanduser().is_absolute():
        raise DrafterConfigError(
            f"rest: datastore is an absolute path, as workers run in other folders; got {path!r}"
        )
    return Datastore(Path(path).expanduser())


DRAFTER = Rest
