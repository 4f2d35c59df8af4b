"""A thread that does small jobs while there are any, and sleeps otherwise."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Housekeeper:
    """Calls ``tick`` every ``period_s`` from the moment it is woken until ``tick`` returns False.

    A job that fails is logged and tried again. The thread starts when it is first woken and ends
    with the process, or by ``stop``.
    """

    def __init__(self, tick: Callable[[], bool], period_s: float) -> None:
        self._tick = tick
        self._period_s = period_s
        self._work = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Say that there is something to do. Never blocks for long; safe from any thread."""
        self._work.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stopped.is_set():
                    self._thread = threading.Thread(
                        target=self._run, name="drafter-housekeeper", daemon=True
                    )
                    self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopped.set()
        self._work.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            self._work.wait()
            if self._stopped.wait(self._period_s):
                return
            self._work.clear()
            try:
                more = self._tick()
            except Exception:
                logger.exception("housekeeping of the drafters failed")
                more = True
            if more:
                self._work.set()
