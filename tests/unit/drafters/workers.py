"""Drafter workers in this process that are late, die or lie when told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, cast

from drafters.api import DraftBatch, DraftBatchReply, DrafterInfo
from drafters.features import needs_hidden_states
from drafters.members import Member
from drafters.methods.prompt_lookup import PromptLookup
from drafters.sessions import DraftServer


class GoneError(Exception):
    """Raised for calls to workers that are away."""


class Worker:
    """A draft server with a post box: ``paused`` leaves calls unanswered until ``resume``."""

    def __init__(self, replica_id: str = "r1", name: str = "pld") -> None:
        self.name = name
        self.replica_id = replica_id
        self.paused = False
        self.error: Exception | None = None
        self.forge: Callable[[DraftBatchReply], object] | None = None
        self.batches: list[DraftBatch] = []
        self._waiting: list[tuple[DraftBatch, Future[DraftBatchReply]]] = []
        self.num_starts = 0
        self.restart()

    def restart(self) -> None:
        self.num_starts += 1
        self.error = None
        self.server = DraftServer(PromptLookup(), f"start {self.num_starts}", time.perf_counter)

    def member(self) -> Member:
        drafter = self.server.drafter
        info = DrafterInfo(
            self.name,
            drafter.version,
            8,
            self.server.incarnation,
            needs_hidden_states(drafter),
        )
        return Member(self.name, self.replica_id, info, self)

    def send(self, batch: DraftBatch) -> Future[DraftBatchReply]:
        future: Future[DraftBatchReply] = Future()
        self.batches.append(batch)
        if self.paused:
            self._waiting.append((batch, future))
        else:
            self._answer(batch, future)
        return future

    def resume(self) -> None:
        self.paused = False
        for batch, future in self._waiting:
            self._answer(batch, future)
        self._waiting.clear()

    @property
    def num_unanswered(self) -> int:
        return len(self._waiting)

    def _answer(self, batch: DraftBatch, future: Future[DraftBatchReply]) -> None:
        if self.error is not None:
            future.set_exception(self.error)
            return
        reply = self.server.answer(batch)
        while self.server.tidy() is not None:
            pass
        # A forged reply may be of any type: that is what it is for.
        future.set_result(cast(DraftBatchReply, self.forge(reply)) if self.forge else reply)


class PostTransport:
    def send(self, member: Member, batch: DraftBatch) -> Future[DraftBatchReply]:
        worker: Worker = member.handle
        return worker.send(batch)

    def reason(self, error: BaseException) -> Literal["failed", "away"]:
        return "away" if isinstance(error, GoneError) else "failed"


def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.005)
