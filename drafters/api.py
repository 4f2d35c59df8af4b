"""Contract of the drafters: sessions, drafts, and what travels between a Verifier and a drafter.

A drafter proposes tokens; it never decides what is emitted. Its state is a cache: whoever calls it
names the position it believes the session to be at, and a drafter that does not know the session,
or is elsewhere in it, answers ``NeedContext`` and is then sent the whole context. So a drafter may
be restarted, moved or shared without anything else depending on it.

This module knows neither Ray nor any drafting method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from drafters.shadow import FollowedTokens, ShadowCounts

ROOT = -1
"""Parent of a draft's first tokens: the last committed token of the sequence."""


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """What a drafter that samples needs to draw with the target's own noise.

    Attributes:
        seed: The request's seed.
        choice_index: Which of the request's ``n`` choices this is.
        temperature: Sampling temperature; 0 is greedy.
    """

    seed: int
    choice_index: int
    temperature: float


@dataclass(frozen=True, slots=True)
class SessionContext:
    """Everything a drafter needs to know to start a session anew.

    Attributes:
        token_ids: Prompt and tokens emitted so far, oldest first.
        prompt_length: How many of them are the prompt.
        noise: Key of the target's sampling noise; deterministic drafters ignore it.
        tenant: Whose request it is; what is learnt from one tenant's text stays with it.
    """

    token_ids: tuple[int, ...]
    prompt_length: int
    noise: NoiseKey
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens as a tree, parents first and best first.

    Because of that order every prefix of a draft is itself a draft, and whoever verifies it may cut
    it anywhere. A chain is the tree whose every node has the node before it as parent.

    Attributes:
        token_ids: Proposed tokens, ``[num_nodes]``.
        parents: For each node the index of its parent, smaller than its own; ``ROOT`` for a child
            of the last committed token.
        score: The drafter's own confidence, in its own unit (match length, path probability).
        cost_ms: Time the drafter spent on this draft.
    """

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    score: float = 0.0
    cost_ms: float = 0.0

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.parents):
            raise ValueError(
                f"a draft has one parent a token: {len(self.token_ids)} tokens, "
                f"{len(self.parents)} parents"
            )
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ValueError(f"node {node} has parent {parent}; parents come first")

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_chain(self) -> bool:
        """Whether every node follows the one before it."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @property
    def depths(self) -> tuple[int, ...]:
        """How many nodes lead down to each node, itself included.

        The token after a node at depth ``d`` has the position of the draft's first tokens plus
        ``d``.

        >>> Draft((5, 6, 7), (ROOT, ROOT, 0)).depths
        (1, 1, 2)
        """
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    def prefix(self, num_nodes: int) -> Draft:
        """Return the draft of the first ``num_nodes`` nodes (all of them if there are fewer)."""
        if num_nodes >= len(self):
            return self
        return Draft(self.token_ids[:num_nodes], self.parents[:num_nodes], self.score, self.cost_ms)


EMPTY_DRAFT = Draft((), ())


def chain(token_ids: Sequence[int], score: float = 0.0, cost_ms: float = 0.0) -> Draft:
    """Return the draft that proposes ``token_ids`` one after the other.

    >>> chain([5, 6]).parents
    (-1, 0)
    """
    return Draft(tuple(token_ids), tuple(range(-1, len(token_ids) - 1)), score, cost_ms)


@dataclass(frozen=True, slots=True)
class NeedContext:
    """A drafter's answer when it does not have the session at the position named.

    Attributes:
        position: Length of the context that the drafter has; 0 if it has none.
    """

    position: int = 0


@dataclass(frozen=True, slots=True)
class Busy:
    """A drafter's answer when it does not take the request on: it is at its capacity.

    Attributes:
        reason: ``sessions``: it has no room for another session; ``queue``: too many calls wait.
    """

    reason: Literal["sessions", "queue"]


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One sequence's part of a call to a drafter.

    Either ``context`` is given and (re)opens the session, or ``new_token_ids`` extends it from
    ``position``; then a draft of at most ``max_tokens`` tokens is proposed.

    Attributes:
        session_id: Names the sequence, across all drafters.
        position: Length of the context that the caller believes the drafter has.
        new_token_ids: Tokens emitted since then.
        max_tokens: Most tokens to propose, at least 1.
        context: The whole context, ``new_token_ids`` included, where it must be sent.
        hidden_states: For drafters that need them: of each token sent the target's state at the
            token before it, from which it was predicted, ``[num_tokens, hidden_size]``. A
            ``context`` has one row less than tokens, as no token comes before its first.
    """

    session_id: str
    position: int
    new_token_ids: tuple[int, ...]
    max_tokens: int
    context: SessionContext | None = None
    hidden_states: NDArray[np.floating[Any]] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ClosedSession:
    """A session that has ended, with the tokens that the drafter has not been sent.

    Attributes:
        session_id: The session.
        position: Length of a context that the drafter is known to have had; 0 if none is.
        token_ids: All tokens after that; those that the drafter has already are among them. Empty
            if ``position`` is 0.
    """

    session_id: str
    position: int = 0
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """One call to one drafter: all sequences of a step that chose it.

    Attributes:
        requests: The sequences to draft for.
        closed: Sessions that have ended and can be forgotten, soon after the answer.
        followed: Tokens of sequences that the drafter only follows.
    """

    requests: tuple[DraftRequest, ...]
    closed: tuple[ClosedSession, ...] = ()
    followed: tuple[FollowedTokens, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftBatchReply:
    """What one call to a drafter returned.

    Attributes:
        incarnation: Drawn by the drafter's process when it started; a caller that knew another one
            has lost its sessions there.
        drafts: One answer a request, in their order.
        draft_ms: Time spent drafting, without transport and queue.
        num_sessions: Sessions now open.
        queue_ms: How long the call waited for others, in the drafter's process.
        shadow_counts: What following sequences gave since the last reply that said so.
    """

    incarnation: str
    drafts: tuple[Draft | NeedContext | Busy, ...]
    draft_ms: float
    num_sessions: int = 0
    queue_ms: float = 0.0
    shadow_counts: ShadowCounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """What a drafter says of itself.

    Attributes:
        name: The name that arms use.
        version: Changes whenever its proposals may; part of the key of all statistics.
        max_tokens: Largest draft it makes.
        incarnation: Drawn when its process started.
        needs_hidden_states: Whether it works from the target's hidden states.
    """

    name: str
    version: str
    max_tokens: int
    incarnation: str = ""
    needs_hidden_states: bool = False


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What a drafting method can check of the model that it is to draft for.

    Attributes:
        model_name: The model's name.
        vocab_size: Its token ids are smaller.
        tokenizer_fingerprint: Of its tokenizer, as ``models.tokenizer`` takes it.
    """

    model_name: str
    vocab_size: int
    tokenizer_fingerprint: str


class Drafter(Protocol):
    """One drafting method. Every file in ``drafters.methods`` has one, found by its file name.

    Implementations are single-threaded, do no I/O after construction and never sample from a random
    generator of their own.
    """

    @property
    def version(self) -> str:
        """Changes whenever the method's proposals may."""

    @property
    def max_tokens(self) -> int:
        """Largest draft the method makes."""

    def open(self, session_id: str, context: SessionContext) -> None:
        """Start the session, or start it anew, from the whole context."""

    def position(self, session_id: str) -> int:
        """Return the length of the session's context; 0 if the session is unknown."""

    def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
        """Append emitted tokens to a session.

        Raises:
            UnknownSessionError: If the session is not open.
        """

    def propose(self, wanted: Sequence[tuple[str, int]]) -> list[Draft]:
        """Propose for each (session, most tokens) a draft of at most that many tokens.

        A method that finds nothing returns an empty draft.

        Raises:
            UnknownSessionError: If a session is not open.
        """

    def close(self, session_id: str) -> None:
        """Forget a session; unknown ones are no error."""
