"""Replay followed sequences: propose at each of their tokens, and count what then came. Pure.

A replay has a session of its own on the drafter, beside the one that real calls may have, and is
some tokens behind the sequence, so that it knows what came. It is done one token at a time, while
nobody waits for a draft. What it may hold is bounded; what does not fit is not followed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from drafters.api import ROOT, Draft, Drafter, NoiseKey, SessionContext
from drafters.shadow import (
    MAX_DEPTH,
    MAX_RANK,
    FollowedTokens,
    ShadowCell,
    ShadowCounts,
    add_counts,
    score_bucket,
)

MAX_NODES = 32
"""Largest draft that is replayed."""
_ALL_PROMPT = 1 << 62
"""A replayed session never gets to its reply, so a method that shares replies shares none of it."""


@dataclass(slots=True)
class _Replay:
    session_id: str
    position: int
    """Tokens that have come, those that wait included."""
    used_at: float
    waiting: deque[int] = field(default_factory=deque)
    is_complete: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether enough has come to tell what became of a draft here, or nothing more will."""
        return len(self.waiting) >= MAX_DEPTH or self.is_complete


class Replayer:
    """The replays of one drafter.

    Args:
        drafter: The method.
        max_replays: Most sequences followed at a time.
        max_waiting: Most tokens of a sequence that wait to be replayed.
        idle_s: A sequence of which nothing came for longer is not followed any more.
    """

    def __init__(
        self,
        drafter: Drafter,
        max_replays: int = 64,
        max_waiting: int = 4096,
        idle_s: float = 120.0,
    ) -> None:
        self._drafter = drafter
        self._max_replays = max_replays
        self._max_waiting = max_waiting
        self._idle_s = idle_s
        self._replays: OrderedDict[str, _Replay] = OrderedDict()
        self._ready: deque[str] = deque()
        self._counts: dict[ShadowCell, tuple[int, int]] = {}
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._replays)

    @property
    def has_work(self) -> bool:
        """Whether ``step`` would do anything."""
        return bool(self._ready)

    def follows(self, session_id: str) -> bool:
        """Return whether a sequence is being replayed."""
        return session_id in self._replays

    def take(self, followed: FollowedTokens, now: float) -> None:
        """Take in tokens. Where some are missing the sequence is not followed any more."""
        self.forget_idle(now)
        replay = self._replays.get(followed.session_id)
        if followed.position == 0:
            self._start(followed, now)
        elif replay is None:
            return
        elif replay.position != followed.position or self._is_too_much(replay, followed):
            self._drop(replay)
        else:
            replay.position += len(followed.token_ids)
            replay.waiting.extend(followed.token_ids)
            replay.is_complete = followed.is_last
            replay.used_at = now
            self._queue(replay)

    def step(self) -> None:
        """Replay one token of one sequence."""
        session_id = self._ready.popleft()
        replay = self._replays.pop(session_id, None)
        if replay is None:
            return
        name = _name(session_id)
        try:
            self._replay_token(name, replay)
        except BaseException:
            self.num_dropped += 1
            self._drafter.close(name)
            raise
        if replay.is_complete and not replay.waiting:
            self._drafter.close(name)
            return
        self._replays[session_id] = replay
        self._queue(replay)

    def take_counts(self) -> ShadowCounts:
        """Return what was counted since the last call."""
        counts, self._counts = self._counts, {}
        return counts

    def forget_idle(self, now: float) -> None:
        """Stop following sequences of which nothing came for too long."""
        for replay in list(self._replays.values()):
            if now - replay.used_at > self._idle_s and not replay.is_ready:
                self._drop(replay)

    def _replay_token(self, name: str, replay: _Replay) -> None:
        if not replay.waiting:
            return
        came = list(islice(replay.waiting, MAX_DEPTH))
        (draft,) = self._drafter.propose([(name, MAX_NODES)])
        add_counts(self._counts, count(draft, came))
        self._drafter.extend(name, (replay.waiting.popleft(),))

    def _start(self, followed: FollowedTokens, now: float) -> None:
        old = self._replays.get(followed.session_id)
        if old is not None:
            self._drop(old)
        if len(self._replays) >= self._max_replays or followed.is_last:
            self.num_dropped += 1
            return
        context = SessionContext(
            followed.token_ids, _ALL_PROMPT, NoiseKey(0, 0, 0.0), followed.tenant
        )
        self._drafter.open(_name(followed.session_id), context)
        self._replays[followed.session_id] = _Replay(
            followed.session_id, len(followed.token_ids), now
        )

    def _queue(self, replay: _Replay) -> None:
        if replay.is_ready and replay.session_id not in self._ready:
            self._ready.append(replay.session_id)

    def _is_too_much(self, replay: _Replay, followed: FollowedTokens) -> bool:
        return len(replay.waiting) + len(followed.token_ids) > self._max_waiting

    def _drop(self, replay: _Replay) -> None:
        self.num_dropped += 1
        del self._replays[replay.session_id]
        self._drafter.close(_name(replay.session_id))


def count(draft: Draft, came: Sequence[int]) -> ShadowCounts:
    """Return what the tokens that came say of a draft.

    Children of a token count once that token has come. Where ``came`` ends nothing is known, and
    nothing is counted.
    """
    counts: dict[ShadowCell, tuple[int, int]] = {}
    bucket = score_bucket(draft.score)
    node = ROOT
    for depth, token in enumerate(came[:MAX_DEPTH], start=1):
        accepted = ROOT
        for rank, child in enumerate(_children(draft, node)):
            is_it = accepted == ROOT and draft.token_ids[child] == token
            accepted = child if is_it else accepted
            cell = ShadowCell(bucket, depth, min(rank, MAX_RANK))
            add_counts(counts, {cell: (1, int(is_it))})
        if accepted == ROOT:
            break
        node = accepted
    return counts


def _children(draft: Draft, node: int) -> Iterator[int]:
    return (child for child, parent in enumerate(draft.parents) if parent == node)


def _name(session_id: str) -> str:
    """Return the drafter's name for the replay of a session; no real session is called so."""
    return f"shadow\0{session_id}"
