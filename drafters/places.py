"""Where each sequence's sessions are: on which worker, and how far that worker has come.

Pure. It decides what a call must carry: the tokens a worker misses, or the whole context.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafters.api import ClosedSession, DraftRequest, NoiseKey, SessionContext
from drafters.features import HiddenStates
from drafters.members import MemberKey


@dataclass(frozen=True, slots=True)
class DraftWanted:
    """One sequence that wants a draft in this step.

    Attributes:
        session_id: Names the sequence, across all drafters.
        drafter: Name of the drafter that was chosen for it.
        max_tokens: Most tokens to propose.
        token_ids: Prompt and all tokens emitted so far. Borrowed: read during the call only.
            Between two calls of one session it only grows at the end.
        prompt_length: How many of them are the prompt.
        noise: Key of the target's sampling noise.
        tenant: Whose request it is.
        hidden_states: Returns the target's hidden states of the tokens at positions ``start`` to
            ``stop - 1``, one row each; all but the last token's may be asked for. It is called
            during the call only, for drafters that need them and for the tokens that are sent.
    """

    session_id: str
    drafter: str
    max_tokens: int
    token_ids: Sequence[int]
    prompt_length: int
    noise: NoiseKey
    tenant: str = ""
    hidden_states: Callable[[int, int], HiddenStates] | None = None


@dataclass(slots=True)
class _Place:
    worker: MemberKey
    position: int = 0
    """Length of the context that the worker has; 0 if that is not known."""
    had: int = 0
    """Length of the context that the worker had when that was last known; it may have more now."""


class SessionPlaces:
    """The places of all open sessions, by session and drafter."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, _Place]] = {}
        self._load: Counter[MemberKey] = Counter()

    def __len__(self) -> int:
        return len(self._places)

    def assign(
        self, session_id: str, drafter: str, workers: Sequence[MemberKey]
    ) -> tuple[MemberKey, MemberKey | None]:
        """Return the session's worker, and the one it was moved away from, if any.

        A session stays where it is while that worker is among ``workers`` (never empty). Else it
        goes to the one with the fewest sessions; a rendezvous hash decides between equals, so that
        replicas which know nothing of each other do not all choose the same.
        """
        places = self._places.setdefault(session_id, {})
        old = places.get(drafter)
        if old is not None and old.worker in workers:
            return old.worker, None
        worker = min(workers, key=lambda key: (self._load[key], _hash(session_id, key)))
        places[drafter] = _Place(worker)
        self._load[worker] += 1
        if old is not None:
            self._unload(old.worker)
        return worker, old.worker if old is not None else None

    def home(self, session_id: str, drafter: str) -> MemberKey | None:
        """Return the worker that is known to have the session's context; None if none is."""
        place = self._places.get(session_id, {}).get(drafter)
        return place.worker if place is not None and place.position else None

    def request(
        self, wanted: DraftWanted, max_tokens: int, *, fresh: bool, with_states: bool = False
    ) -> DraftRequest:
        """Return what to send for an assigned session: the tokens missed, or the whole context.

        Args:
            wanted: The sequence.
            max_tokens: Most tokens to propose.
            fresh: Send the whole context whatever the worker is believed to have.
            with_states: Send the tokens' hidden states as well, which the sequence must have.
        """
        position = self._places[wanted.session_id][wanted.drafter].position
        length = len(wanted.token_ids)
        if fresh or not 0 < position <= length:
            position = 0
        states = None
        if with_states and wanted.hidden_states is not None:
            states = wanted.hidden_states(max(0, position - 1), length - 1)
        if position == 0:
            context = SessionContext(
                tuple(wanted.token_ids), wanted.prompt_length, wanted.noise, wanted.tenant
            )
            return DraftRequest(wanted.session_id, 0, (), max_tokens, context, states)
        new_token_ids = tuple(wanted.token_ids[position:])
        return DraftRequest(
            wanted.session_id, position, new_token_ids, max_tokens, hidden_states=states
        )

    def set_position(self, session_id: str, drafter: str, position: int) -> None:
        """Note how far the session's worker has come; 0 if that is not known any more."""
        place = self._places.get(session_id, {}).get(drafter)
        if place is not None:
            place.position = position
            place.had = position or place.had

    def set_position_at(self, worker: MemberKey, session_id: str, position: int) -> None:
        """Note how far a worker has come with a session, if the session is still there."""
        place = self._places.get(session_id, {}).get(worker[0])
        if place is not None and place.worker == worker:
            place.position = place.had = position

    def forget_positions(self, worker: MemberKey) -> None:
        """Note that a worker has lost all its sessions."""
        for places in self._places.values():
            for place in places.values():
                if place.worker == worker:
                    place.position = place.had = 0

    def close(
        self, session_id: str, token_ids: Sequence[int] = ()
    ) -> list[tuple[MemberKey, ClosedSession]]:
        """Forget a sequence; return what each worker that has a session of it must be told.

        Args:
            session_id: The sequence.
            token_ids: Prompt and all tokens emitted, so that the workers get the last ones; may be
                left out.
        """
        places = self._places.pop(session_id, {})
        for place in places.values():
            self._unload(place.worker)
        return [
            (place.worker, _closed(session_id, place.had, token_ids)) for place in places.values()
        ]

    def _unload(self, worker: MemberKey) -> None:
        self._load[worker] -= 1
        if self._load[worker] <= 0:
            del self._load[worker]


def _closed(session_id: str, had: int, token_ids: Sequence[int]) -> ClosedSession:
    if not 0 < had < len(token_ids):
        return ClosedSession(session_id)
    return ClosedSession(session_id, had, tuple(token_ids[had:]))


def _hash(session_id: str, worker: MemberKey) -> bytes:
    text = "\0".join((session_id, *worker))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
