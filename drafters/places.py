"""Where each sequence's sessions are: on which worker, and how far that worker has come.

Pure. It decides what a call must carry: the tokens a worker misses, or the whole context.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from drafters.api import DraftRequest, NoiseKey, SessionContext
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
    """

    session_id: str
    drafter: str
    max_tokens: int
    token_ids: Sequence[int]
    prompt_length: int
    noise: NoiseKey
    tenant: str = ""


@dataclass(slots=True)
class _Place:
    worker: MemberKey
    position: int = 0
    """Length of the context that the worker has; 0 if that is not known."""


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

    def request(self, wanted: DraftWanted, max_tokens: int, *, fresh: bool) -> DraftRequest:
        """Return what to send for an assigned session: the tokens missed, or the whole context.

        Args:
            wanted: The sequence.
            max_tokens: Most tokens to propose.
            fresh: Send the whole context whatever the worker is believed to have.
        """
        position = self._places[wanted.session_id][wanted.drafter].position
        if fresh or not 0 < position <= len(wanted.token_ids):
            context = SessionContext(
                tuple(wanted.token_ids), wanted.prompt_length, wanted.noise, wanted.tenant
            )
            return DraftRequest(wanted.session_id, 0, (), max_tokens, context)
        new_token_ids = tuple(wanted.token_ids[position:])
        return DraftRequest(wanted.session_id, position, new_token_ids, max_tokens)

    def set_position(self, session_id: str, drafter: str, position: int) -> None:
        """Note how far the session's worker has come; 0 if that is not known any more."""
        place = self._places.get(session_id, {}).get(drafter)
        if place is not None:
            place.position = position

    def forget_positions(self, worker: MemberKey) -> None:
        """Note that a worker has lost all its sessions."""
        for places in self._places.values():
            for place in places.values():
                if place.worker == worker:
                    place.position = 0

    def close(self, session_id: str) -> list[MemberKey]:
        """Forget a sequence; return the workers that have a session of it."""
        places = self._places.pop(session_id, {})
        for place in places.values():
            self._unload(place.worker)
        return [place.worker for place in places.values()]

    def _unload(self, worker: MemberKey) -> None:
        self._load[worker] -= 1
        if self._load[worker] <= 0:
            del self._load[worker]


def _hash(session_id: str, worker: MemberKey) -> bytes:
    text = "\0".join((session_id, *worker))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
