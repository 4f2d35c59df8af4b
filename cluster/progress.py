"""Tell whoever started the system what it is doing: a live line on a terminal, else plain lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

PLAIN_PERIOD_S = 10.0
_LIVE_PERIOD_S = 0.2
_QUICK_S = 0.5


class Task:
    """Something that takes long. Call it with the bytes done; ``note`` says what it waits for."""

    def __init__(self, label: str, total_bytes: int | None) -> None:
        self._label, self._total_bytes = label, total_bytes
        self._num_bytes: int | None = None
        self._note = ""
        self._started = time.monotonic()

    def __call__(self, num_bytes: int) -> None:
        """Take note of the bytes done so far."""
        self._num_bytes = num_bytes

    def note(self, text: str) -> None:
        """Say what the task is at now."""
        self._note = text

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._started

    def text(self) -> str:
        """Return the task, how far it is and how long it has taken, in one line."""
        parts = [self._label]
        if self._num_bytes is not None:
            parts.append(progress_text(self._num_bytes, self._total_bytes))
        if self._note:
            parts.append(self._note)
        return (
            f"{': '.join(parts[:2])}{''.join(f', {p}' for p in parts[2:])} ({self.elapsed_s:.0f} s)"
        )


def progress_text(num_bytes: int, total_bytes: int | None) -> str:
    """Return bytes done, of how many, in a unit for people.

    >>> progress_text(5_000_000, 88_600_000)
    '5.0 of 88.6 MB'
    """
    if total_bytes is None:
        return f"{num_bytes / 1e6:.1f} MB"
    return f"{min(num_bytes, total_bytes) / 1e6:.1f} of {total_bytes / 1e6:.1f} MB"


class Reporter:
    """Writes progress to one stream.

    Args:
        stream: Where to write; what it is decides between live and plain lines.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)

    def say(self, text: str) -> None:
        """Write a text as it is, unbroken, so that it can be copied."""
        self._console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def task(self, label: str, total_bytes: int | None = None) -> Iterator[Task]:
        """Show a task while the context lasts, and afterwards how long it took."""
        task = Task(label, total_bytes)
        if self._console.is_terminal:
            with self._live(task):
                yield task
        else:
            self.say(f"{label} ...")
            with _every(PLAIN_PERIOD_S, lambda: self.say(f"  {task.text()}")):
                yield task
        if task.elapsed_s >= _QUICK_S:
            self.say(f"  done: {task.text()}")

    @contextmanager
    def _live(self, task: Task) -> Iterator[None]:
        spinner = Spinner("line", task.text())
        with (
            Live(spinner, console=self._console, transient=True, refresh_per_second=8),
            _every(_LIVE_PERIOD_S, lambda: spinner.update(text=task.text())),
        ):
            yield


@contextmanager
def _every(period_s: float, show: Callable[[], None]) -> Iterator[None]:
    done = threading.Event()

    def run() -> None:
        while not done.wait(period_s):
            show()

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
