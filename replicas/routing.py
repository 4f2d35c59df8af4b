"""Which Verifier gets a request: one that has its prefix cached, unless it is loaded. Pure.

Random draws are passed in. What a Verifier has cached is not asked but remembered: whoever was
given a prefix has it, until it needed the room. A wrong memory costs one prefill.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

MAX_KNOWN = 16_384
"""Requests of which it is remembered where they were placed."""
UNSENT_S = 1.0
"""A request that was placed counts as load for so long, until it is known to have arrived."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Verifier that may get a request.

    Attributes:
        replica: Its name.
        load: Requests it has.
        cached_tokens: How many of the prompt's first tokens it has cached.
    """

    replica: str
    load: float
    cached_tokens: int = 0


def ranked(
    candidates: Sequence[Candidate], tokens_per_request: float, rng: random.Random
) -> list[str]:
    """Return the candidates in the order in which they should be given the request.

    Two drawn at random and all that have some of the prefix cached are compared by cached tokens
    less load, a request weighing as much as ``tokens_per_request`` tokens; ties are broken at
    random. So a request follows its prefix while that saves more than the queue there costs, and
    is otherwise placed by two random choices (Mitzenmacher 2001), which several Ingresses may do
    at a time without all choosing the same one.
    """
    drawn = rng.sample(candidates, len(candidates))
    first = {one.replica for one in drawn[:2]} | {c.replica for c in drawn if c.cached_tokens > 0}

    def key(one: Candidate) -> tuple[bool, float]:
        return (one.replica not in first, tokens_per_request * one.load - one.cached_tokens)

    return [one.replica for one in sorted(drawn, key=key)]


def without(candidates: Sequence[Candidate], avoided: Collection[str]) -> Sequence[Candidate]:
    """Return the candidates but for those avoided, or all of them if none were left."""
    return [one for one in candidates if one.replica not in avoided] or candidates


class PrefixMemory:
    """Which Verifiers were given which pages of prompts; the longest unused are forgotten first.

    Args:
        max_pages: Most pages remembered.
    """

    def __init__(self, max_pages: int) -> None:
        self._max_pages = max_pages
        self._replicas: OrderedDict[bytes, set[str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._replicas)

    def note(self, pages: Sequence[bytes], replica: str) -> None:
        """Note that a Verifier is given a prompt with these pages."""
        # Last pages first, so that they are forgotten first: without those before they are no use.
        for page in reversed(pages):
            self._replicas.setdefault(page, set()).add(replica)
            self._replicas.move_to_end(page)
        while len(self._replicas) > self._max_pages:
            self._replicas.popitem(last=False)

    def num_cached(self, pages: Sequence[bytes], replica: str) -> int:
        """Return how many of the first of these pages a Verifier was given."""
        for count, page in enumerate(pages):
            if replica not in self._replicas.get(page, ()):
                return count
        return len(pages)

    def forget_all_but(self, replicas: Collection[str]) -> None:
        """Forget the Verifiers that are no more."""
        for page, holders in list(self._replicas.items()):
            holders.intersection_update(replicas)
            if not holders:
                del self._replicas[page]


class Placements:
    """Which requests are where, so that a burst is spread before any of it has arrived."""

    def __init__(self) -> None:
        self._num_running: Counter[str] = Counter()
        self._running: dict[str, str] = {}
        self._unsent: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def place(self, call_id: str, replica: str, now: float) -> None:
        """Note that a call is about to be sent to a Verifier."""
        self._unsent[call_id] = (replica, now)
        self._unsent.move_to_end(call_id)
        while len(self._unsent) > MAX_KNOWN:
            self._unsent.popitem(last=False)

    def arrive(self, call_id: str, replica: str) -> None:
        """Note that a Verifier took a call on, unless it has already ended."""
        if self._unsent.pop(call_id, None) is not None:
            self._running[call_id] = replica
            self._num_running[replica] += 1

    def end(self, call_id: str) -> None:
        """Note that a call is over, however it ended."""
        self._unsent.pop(call_id, None)
        replica = self._running.pop(call_id, None)
        if replica is not None:
            self._num_running[replica] -= 1
            self._num_running += Counter()  # leaves out those that are 0

    def load(self, replica: str, now: float) -> int:
        """Return how many calls a Verifier has, and those lately placed that have not arrived."""
        count = self._num_running[replica]
        for placed_on, placed_at in reversed(self._unsent.values()):
            if now - placed_at >= UNSENT_S:
                break
            count += placed_on == replica
        return count
