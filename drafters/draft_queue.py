"""Calls to one draft server, in turn, and what was put off in between, on one thread."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from drafters.api import Busy, DraftBatch, DraftBatchReply
from drafters.sessions import DraftServer

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Call:
    batch: DraftBatch
    came_at: float
    reply: Future[DraftBatchReply] = field(default_factory=Future)


class DraftQueue:
    """Has one thread make all drafts, and tidy up while no call waits.

    The thread starts when it is first needed and ends with the process, or by ``stop``.

    Args:
        server: Answers the calls.
        clock: Seconds from any start, never going back.
        max_queued: Most calls for drafts that wait; further ones are answered ``Busy``.
    """

    def __init__(
        self, server: DraftServer, clock: Callable[[], float], max_queued: int = 16
    ) -> None:
        self.server = server
        self._clock = clock
        self._max_queued = max_queued
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self.num_refused = 0

    @property
    def num_waiting(self) -> int:
        """Calls that wait."""
        return self._calls.qsize()

    def call(self, batch: DraftBatch) -> DraftBatchReply:
        """Answer a call when its turn comes. Blocks; may be called from many threads."""
        if batch.requests and self._calls.qsize() >= self._max_queued:
            self.num_refused += 1
            busy = tuple(Busy("queue") for _ in batch.requests)
            num_sessions = self.server.load().num_sessions
            return DraftBatchReply(self.server.incarnation, busy, 0.0, num_sessions)
        call = _Call(batch, self._clock())
        self._calls.put(call)
        self._start()
        return call.reply.result()

    def call_here(self, batch: DraftBatch) -> DraftBatchReply:
        """Answer a call at once, on the caller's thread; tidy up on the other one."""
        reply = self.server.answer(batch)
        self.wake()
        return reply

    def wake(self) -> None:
        """Have the thread look whether there is something to tidy up."""
        if self.server.has_backlog:
            self._calls.put(None)
            self._start()

    def stop(self) -> None:
        """End the thread, once the calls that wait have been answered."""
        with self._lock:
            self._is_stopped = True
            thread = self._thread
        self._calls.put(None)
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(target=self._run, name="drafts", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause_s: float | None = None
        while True:
            try:
                call = self._calls.get(timeout=pause_s)
            except queue.Empty:
                call = None
            if call is not None:
                self._answer(call)
            elif self._is_stopped and self._calls.empty():
                return
            else:
                pause_s = self._tidy()
                continue
            pause_s = 0.0

    def _answer(self, call: _Call) -> None:
        queue_ms = (self._clock() - call.came_at) * 1e3
        try:
            call.reply.set_result(self.server.answer(call.batch, queue_ms))
        except Exception as error:
            call.reply.set_exception(error)

    def _tidy(self) -> float | None:
        try:
            return self.server.tidy()
        except Exception:
            logger.exception("tidying up after drafts failed")
            return 0.0
