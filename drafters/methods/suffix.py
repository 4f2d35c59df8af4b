"""SuffixDecoding: propose what followed the longest matches in this request and in past replies.

Source: SuffixDecoding (Oliaro et al., arXiv 2411.04975) and its published implementation (Arctic
Inference, ``suffix_decoding``). Two texts are searched for the last tokens of a sequence: its own
prompt and reply, and the past replies of its tenant. For every match length ``p`` up to
``max_match`` a draft of at most ``max_spec_factor * p`` tokens is grown from the occurrences of the
last ``p`` tokens, most probable tokens first (``drafters.suffix_index.growth``); of all these
drafts the one with the highest score is proposed, the score being the sum of the probabilities:
the number of tokens that are expected to be accepted. So long matches and frequent continuations
make long drafts. Of equal scores the request's own text wins, then the longer match.

What counts as an occurrence is said exactly in ``GramIndex.matches``. Different from the paper:

* Of each suffix the ``max_occurrences`` most recent occurrences count, not all. That bounds the
  time of a draft and follows a text whose habits change.
* ``max_match`` (the paper's tree depth) bounds the match alone, not match and draft together; a
  draft is bounded by ``max_tokens``.
* A probability divides by the occurrences that some token follows, as in the paper; the published
  implementation counts those at the end of a text, too.
* A reply is shared once its session is closed here, not while it grows. The tokens that were
  emitted after the last call come with the end of the session, unless its position was never
  confirmed; and a session that was dropped as idle and comes back shares its beginning twice.

Sharing is as wide as the drafter: all Verifiers that call one worker share its replies, several
workers share nothing among them, and a restarted one starts empty. What a tenant's replies teach
is proposed to the same tenant only.

Knows neither models nor other drafters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from drafters.api import EMPTY_DRAFT, Draft, SessionContext
from drafters.errors import DrafterConfigError
from drafters.open_sessions import OpenSessions
from drafters.parameters import check_choice, check_whole
from drafters.suffix_index.grams import GramIndex
from drafters.suffix_index.growth import BestGrowth, grow_chain, grow_tree
from drafters.suffix_index.pool import ReplyPool

_NAME = "suffix"

Shape = Literal["tree", "chain"]


@dataclass(frozen=True, slots=True)
class _Session:
    index: GramIndex
    token_ids: list[int]
    prompt_length: int
    tenant: str


class Suffix:
    """Proposes the most probable continuations of the longest matches.

    The score of a draft is the number of its tokens that are expected to be accepted.

    Args:
        shape: ``tree``: the most probable nodes, listed best first; ``chain``: the most probable
            token at each depth.
        max_spec_factor: Most tokens drafted for each token matched, 0.001 to 1000 (published
            default 1).
        min_token_prob: Tokens less probable than this, by count, are not drafted, 0 to 1
            (published default 0.1).
        max_match: Longest suffix looked up, at least 1 (published default of the depth: 64).
        max_occurrences: Most occurrences of a suffix that count, the most recent, at least 1.
        max_tokens: Largest draft, at least 1.
        max_pool_tokens: Most tokens of past replies kept, of all tenants; 0 shares nothing. About
            200 bytes a token.
        max_tenant_tokens: Most tokens of past replies kept of one tenant.
        max_tenants: Most tenants of whom replies are kept, at least 1.

    Raises:
        DrafterConfigError: If a value cannot be.
    """

    def __init__(
        self,
        *,
        shape: Shape = "tree",
        max_spec_factor: float = 1.0,
        min_token_prob: float = 0.1,
        max_match: int = 64,
        max_occurrences: int = 16,
        max_tokens: int = 64,
        max_pool_tokens: int = 500_000,
        max_tenant_tokens: int = 250_000,
        max_tenants: int = 256,
    ) -> None:
        check_choice(_NAME, "shape", shape, get_args(Shape))
        _check_number("max_spec_factor", max_spec_factor, 1e-3, 1e3)
        _check_number("min_token_prob", min_token_prob, 0.0, 1.0)
        check_whole(_NAME, "max_match", max_match, 1)
        check_whole(_NAME, "max_occurrences", max_occurrences, 1)
        check_whole(_NAME, "max_tokens", max_tokens, 1)
        check_whole(_NAME, "max_pool_tokens", max_pool_tokens, 0)
        check_whole(_NAME, "max_tenant_tokens", max_tenant_tokens, 0)
        check_whole(_NAME, "max_tenants", max_tenants, 1)
        self._version = (
            f"suffix/1(shape={shape},max_spec_factor={float(max_spec_factor)},"
            f"min_token_prob={float(min_token_prob)},max_match={max_match},"
            f"max_occurrences={max_occurrences},max_tokens={max_tokens},"
            f"max_pool_tokens={max_pool_tokens},max_tenant_tokens={max_tenant_tokens},"
            f"max_tenants={max_tenants})"
        )
        self._grow = grow_tree if shape == "tree" else grow_chain
        self._max_spec_factor = max_spec_factor
        self._min_token_prob = min_token_prob
        self._max_match = max_match
        self._max_tokens = max_tokens
        self._new_index = partial(GramIndex, max_match, max_occurrences)
        self._pool = ReplyPool(
            self._new_index,
            max_tokens=max_pool_tokens,
            max_tenant_tokens=max_tenant_tokens,
            max_tenants=max_tenants,
        )
        self._sessions = OpenSessions[_Session]()

    @property
    def version(self) -> str:
        """Changes whenever the method's proposals may, but for the replies it has seen."""
        return self._version

    @property
    def max_tokens(self) -> int:
        """Largest draft the method makes."""
        return self._max_tokens

    def open(self, session_id: str, context: SessionContext) -> None:
        """Start the session, or start it anew, from the whole context.

        The reply of a session that is started anew is not shared; it will be when it is closed.
        """
        index = self._new_index()
        token_ids = index.token_ids(index.add(context.token_ids))
        self._sessions[session_id] = _Session(
            index, token_ids, context.prompt_length, context.tenant
        )

    def position(self, session_id: str) -> int:
        """Return the length of the session's context; 0 if the session is unknown."""
        session = self._sessions.get(session_id)
        return len(session.token_ids) if session else 0

    def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
        """Append emitted tokens to a session.

        Raises:
            UnknownSessionError: If the session is not open.
        """
        self._sessions[session_id].index.extend(0, token_ids)

    def propose(self, wanted: Sequence[tuple[str, int]]) -> list[Draft]:
        """Propose for each (session, most tokens) a draft of at most that many tokens.

        A session that matches nothing gets an empty draft.

        Raises:
            UnknownSessionError: If a session is not open.
        """
        return [self._propose(self._sessions[session_id], most) for session_id, most in wanted]

    def close(self, session_id: str) -> None:
        """Forget a session and keep its reply for its tenant; unknown ones are no error."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._pool.add(session.tenant, session.token_ids[session.prompt_length :])

    def _propose(self, session: _Session, most: int) -> Draft:
        pattern = session.token_ids[-self._max_match :]
        best = BestGrowth(
            self._grow,
            min(most, self._max_tokens),
            self._max_spec_factor,
            self._min_token_prob,
        )
        for length, occurrences in session.index.matches(pattern, best.is_worth):
            best.offer(length, occurrences)
        for length, occurrences in self._pool.matches(session.tenant, pattern, best.is_worth):
            best.offer(length, occurrences)
        if not best.growth:
            return EMPTY_DRAFT
        return Draft(tuple(best.growth.token_ids), tuple(best.growth.parents), best.score)


def _check_number(name: str, value: Any, least: float, most: float) -> None:
    if type(value) not in (int, float) or not least <= value <= most:
        raise DrafterConfigError(
            f"suffix: {name} is a number from {least:g} to {most:g}, got {value!r}"
        )


DRAFTER = Suffix
