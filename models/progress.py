"""How the model store tells what takes long; the command line shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

_PERIOD_S = 0.3


class ModelProgress(Protocol):
    """Shown to whoever waits."""

    def task(
        self, label: str, total_bytes: int | None = None
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Show a task while the context lasts; it gives a function to call with bytes done."""


class QuietProgress:
    """Shows nothing."""

    @contextmanager
    def task(self, label: str, total_bytes: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show nothing."""
        yield lambda num_bytes: None


def num_bytes_under(folder: Path) -> int:
    """Bytes of all files under a folder whose files come and go meanwhile."""
    return sum(_sizes(folder))


def largest_file_under(folder: Path) -> int:
    """Bytes of the largest file: of one download, which pip keeps twice while it moves it."""
    return max(_sizes(folder), default=0)


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except OSError:  # moved or removed since it was listed
            continue


@contextmanager
def watched(
    progress: ModelProgress,
    label: str,
    folder: Path,
    total_bytes: int | None,
    measure: Callable[[Path], int] = num_bytes_under,
) -> Iterator[None]:
    """Show a task whose progress is what ``measure`` says of ``folder``."""
    done = threading.Event()
    with progress.task(label, total_bytes) as update:

        def watch() -> None:
            while not done.wait(_PERIOD_S):
                update(measure(folder))

        thread = threading.Thread(target=watch, name="watch-download", daemon=True)
        thread.start()
        try:
            yield
            if total_bytes is not None:
                update(total_bytes)
        finally:
            done.set()
            thread.join()
