"""The engine's own thread: takes requests in, runs steps, hands results out, tells its health.

Nothing here waits for HTTP, for the event loop or for the policy. What a step gives is handed to a
callback, which must only pass it on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from replicas.api import GenerationRequest
from replicas.engine.commit import StepOutput
from replicas.engine.core import EngineCore
from replicas.errors import EngineStoppedError, QueueFullError

logger = logging.getLogger(__name__)


class EngineLoop:
    """Runs an engine until it is stopped.

    Args:
        core: The engine.
        on_step: Called on the engine's thread with what each step gave.
        on_stop: Called once on the engine's thread when it ends, with why (None: it was asked to).
        max_queued: Most requests that may wait.
        stall_s: With work and no step for this long, the engine is unhealthy.
        on_start: Called first on the engine's thread.
    """

    def __init__(
        self,
        core: EngineCore,
        on_step: Callable[[StepOutput], None],
        on_stop: Callable[[BaseException | None], None],
        max_queued: int,
        stall_s: float,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._core = core
        self._on_step = on_step
        self._on_stop = on_stop
        self._on_start = on_start
        self._max_queued = max_queued
        self._stall_s = stall_s
        self._changed = threading.Condition()
        self._inbox: deque[tuple[GenerationRequest, float]] = deque()
        self._cancelled: set[str] = set()
        self._is_stopping = False
        self._busy_since: float | None = None
        self._last_step_at = time.monotonic()
        self._num_rejected = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop after the current step and wait for the thread."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def submit(self, request: GenerationRequest) -> None:
        """Queue a checked request.

        Raises:
            QueueFullError: If too many wait already.
            EngineStoppedError: If the engine does not run.
        """
        with self._changed:
            if self._is_stopping or not self._thread.is_alive():
                raise EngineStoppedError("the engine of this Verifier has stopped")
            num_queued = len(self._inbox) + self._core.num_waiting
            if num_queued > self._max_queued:
                self._num_rejected += 1
                raise QueueFullError(
                    f"{num_queued} requests are waiting, the limit is {self._max_queued}"
                )
            self._inbox.append((request, time.monotonic()))
            self._changed.notify()

    def cancel(self, request_id: str) -> None:
        """Drop a request before the next step; unknown ones are no error."""
        with self._changed:
            self._cancelled.add(request_id)
            self._changed.notify()

    def problem(self) -> str | None:
        """Return what is wrong with the engine, or None if it is healthy."""
        if not self._thread.is_alive():
            return "the engine's thread has ended"
        busy_since = self._busy_since
        if busy_since is not None and time.monotonic() - busy_since > self._stall_s:
            return f"the engine has been in one step for more than {self._stall_s:g} s"
        return None

    def report(self) -> dict[str, float]:
        """Return how the loop goes: requests it has not looked at, refusals, times of steps."""
        now, busy_since = time.monotonic(), self._busy_since
        return {
            "num_arriving": len(self._inbox),
            "num_rejected": self._num_rejected,
            "seconds_since_step": now - self._last_step_at,
            "step_running_s": 0.0 if busy_since is None else now - busy_since,
        }

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._on_start()
            while self._take_in():
                self._busy_since = time.monotonic()
                output = self._core.step()
                self._core.finish(output)
                self._busy_since = None
                self._last_step_at = time.monotonic()
                self._on_step(output)
        except BaseException as caught:  # the thread ends; whoever waits must be told
            logger.exception("the engine has stopped")
            error = caught
        self._on_stop(error)

    def _take_in(self) -> bool:
        """Wait for work and hand it to the core; return False when it is time to stop."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._is_stopping
                        or self._core.has_work
                        or bool(self._inbox)
                        or bool(self._cancelled)
                    )
                )
                if self._is_stopping:
                    return False
                arrived, cancelled = list(self._inbox), self._cancelled
                self._inbox.clear()
                self._cancelled = set()
            for request, arrived_at in arrived:
                self._core.add(request, arrived_at)
            if cancelled:
                self._core.cancel(cancelled)
            if self._core.has_work:
                return True
