"""Writes decision logs: a thread of its own, a bounded queue, rotating files.

Whoever logs never waits: what the thread cannot keep up with is dropped, whole steps at a time, and
counted. A file is locked while it is written, so that whoever deletes old files can tell those of
others that still live; a file is never opened again for writing, so a killed writer leaves at most
a last line without an end.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from policy_service.availability import Availability, describe
from policy_service.config import DecisionLogConfig
from policy_service.decision_log.lines import header_line, record_line
from policy_service.decision_log.records import LogHeader, RoundRecord
from policy_service.decision_log.rotation import Rotation, log_name

logger = logging.getLogger(__name__)

MAX_QUEUED = 512
"""Steps that may wait to be written."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class RotatingFiles:
    """The files of one writer. Every method may raise ``OSError``.

    Args:
        folder: Where they are; made if it is not there.
        rotation: Their sizes and number.
        header: Of each of them, but for the time.
    """

    def __init__(self, folder: Path, rotation: Rotation, header: LogHeader) -> None:
        self._folder, self._rotation, self._header = folder, rotation, header
        self._file: BinaryIO | None = None
        self._num_bytes = 0
        self._num_begun = 0

    def write(self, line: bytes) -> bool:
        """Write one line, in a new file if it has no place in this one.

        Returns:
            Whether it was written: a line that fits no file at all is not.
        """
        if self._file is None or self._rotation.is_full(self._num_bytes, len(line)):
            self._begin(len(line))
        if self._file is None or self._rotation.is_full(self._num_bytes, len(line)):
            return False
        self._put(self._file, line)
        return True

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file, also one that can no longer be written; the next line begins another."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.closing(file):
                file.flush()

    def _begin(self, line_bytes: int) -> None:
        self.close()
        now = time.time()
        header = header_line(replace(self._header, created_at=now)).encode()
        if self._rotation.is_full(len(header), line_bytes):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = log_name(now, self._header.incarnation, self._num_begun)
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._num_begun += 1
        self._num_bytes = 0
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._put(self._file, header)
        self._delete_outdated()

    def _put(self, file: BinaryIO, line: bytes) -> None:
        file.write(line)
        self._num_bytes += len(line)

    def _delete_outdated(self) -> None:
        for name in self._rotation.outdated(os.listdir(self._folder)):
            with contextlib.suppress(FileNotFoundError):  # another writer was quicker
                if not _is_written(self._folder / name):
                    (self._folder / name).unlink()


def _is_written(path: Path) -> bool:
    """Whether some process holds the file's lock."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class DecisionLogWriter:
    """Writes rounds to a folder; a disk that is full or away costs rounds, nothing else.

    Args:
        config: Folder, sizes and privacy; the folder is set.
        header: Whose rounds they are.
        max_queued: Steps that may wait.
        open_files: Makes the files.
    """

    def __init__(
        self,
        config: DecisionLogConfig,
        header: LogHeader,
        max_queued: int = MAX_QUEUED,
        open_files: Callable[[Path, Rotation, LogHeader], RotatingFiles] = RotatingFiles,
    ) -> None:
        assert config.folder is not None
        self._config = config
        self._files = open_files(
            config.folder, Rotation(config.max_bytes, config.max_files), header
        )
        self._queue: queue.Queue[Sequence[RoundRecord] | None] = queue.Queue(max_queued)
        self._disk = Availability(
            f"the folder of the decision log, {config.folder},",
            logger,
            _FIRST_PAUSE_S,
            _LONGEST_PAUSE_S,
        )
        self._num_written = self._num_dropped = self._num_failed = 0
        self._thread = threading.Thread(target=self._run, name="decision-log", daemon=True)
        self._thread.start()

    def write(self, records: Sequence[RoundRecord]) -> bool:
        """Have rounds written; never waits.

        Returns:
            Whether there was room; if not, they are dropped and counted.
        """
        try:
            self._queue.put_nowait(records)
        except queue.Full:
            self._num_dropped += len(records)
            return False
        return True

    def status(self) -> dict[str, Any]:
        """Return what became of the rounds so far, and what is wrong with the folder."""
        return {
            "folder": str(self._config.folder),
            "written": self._num_written,
            "dropped": self._num_dropped,
            "failed": self._num_failed,
            "problem": None if self._disk.is_up else self._disk.reason,
        }

    def close(self, timeout_s: float) -> None:
        """Write what waits, for at most so long, and end."""
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (records := self._queue.get()) is not None:
            self._write_step(records)
        with contextlib.suppress(OSError):
            self._files.close()

    def _write_step(self, records: Sequence[RoundRecord]) -> None:
        if not self._disk.may_try(time.time()) and not self._disk.is_up:
            self._num_failed += len(records)
            return
        num_written = 0
        try:
            for record in records:
                line = record_line(record, self._config.tenants).encode()
                num_written += self._files.write(line)
            self._files.flush()
        except Exception as error:  # a boundary: logging must not end with one bad round
            num_written = 0  # how much of it arrived is not known
            self._disk.failed(time.time(), describe(error))
            with contextlib.suppress(OSError):
                self._files.close()
        else:
            self._disk.succeeded(time.time())
        self._num_written += num_written
        self._num_failed += len(records) - num_written
