"""Processes started from here, read from ``/proc``: to see that all of them have ended."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_POLL_S = 0.05


def descendants(pid: int) -> dict[int, str]:
    """Return the processes that ``pid`` started and those they started: id to start time.

    Id and start time together name a process; an id alone may have gone to another one since.
    """
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything; what follows it is plain fields.
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if fields[0] != "Z":
            parents[int(path.parent.name)] = (int(fields[1]), fields[19])
    found: dict[int, str] = {}
    wanted = {pid}
    while wanted:
        below = {child for child, (parent, _) in parents.items() if parent in wanted}
        wanted = below - found.keys()
        found.update({child: parents[child][1] for child in wanted})
    return found


def in_session(session: int) -> dict[int, str]:
    """Return the processes of a session, also those whose parents have ended: id to start time."""
    found: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if fields[0] != "Z" and int(fields[3]) == session:
            found[int(path.parent.name)] = fields[19]
    return found


def command_line(pid: int) -> str:
    """Return a process's command line; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def end_all(processes: dict[int, str], grace_s: float) -> list[int]:
    """Wait for processes to end; after ``grace_s`` kill those that have not.

    Returns:
        The ones that had to be killed.
    """
    deadline = time.monotonic() + grace_s
    while (left := _alive(processes)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for pid in left:
        kill(pid)
    return left


def kill(pid: int) -> None:
    """Kill a process, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _alive(processes: dict[int, str]) -> list[int]:
    return [pid for pid, started in processes.items() if _start_time(pid) == started]


def _start_time(pid: int) -> str | None:
    """Return when a process started; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
