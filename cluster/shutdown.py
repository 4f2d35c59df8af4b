"""Signals that ask us to stop: the first in good order, a second one at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequested(BaseException):
    """Raised in the main thread by the first signal; no ``except Exception`` may swallow it."""


class StopSignals:
    """Turns signals into ``StopRequested``.

    Args:
        on_force: Called when a second signal comes, before the process ends with exit code 130.
    """

    def __init__(self, on_force: Callable[[], None]) -> None:
        self._on_force = on_force
        self._num_received = 0
        self._is_stopping = False

    def install(self) -> None:
        """Take the signals over, again if a library has taken them meanwhile."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup means what it says
            signal.signal(signal.SIGHUP, self._handle)

    def begin_stop(self) -> None:
        """Say that stopping has begun: a first signal no longer interrupts what is done."""
        self._is_stopping = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._num_received += 1
        if self._num_received > 1:
            self._on_force()
            os._exit(130)
        if not self._is_stopping:
            raise StopRequested
