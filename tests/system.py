"""A running system for tests: the real command line in a process of its own."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from cluster.child_system import ChildSystem, start_child
from cluster.processes import command_line, descendants

__all__ = ["ROOT", "System", "command_line", "is_port_free", "start_system"]

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class System(ChildSystem):
    """A system that has been started and answers."""

    def status(self) -> dict[str, Any]:
        """Return what ``/status`` says."""
        answer = httpx.get(f"{self.base_url}/status", timeout=10.0)
        answer.raise_for_status()
        status: dict[str, Any] = answer.json()
        return status

    def pids(self, name: str) -> list[int]:
        """Return its processes whose command line contains ``name``.

        Ray names an actor's process after its class: ``ray::ServeReplica:...:Verifier...``.
        """
        return sorted(pid for pid in descendants(self.process.pid) if name in command_line(pid))

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = 90.0) -> None:
        """Wait for a condition on the running system; an error in it counts as not yet.

        Raises:
            AssertionError: If it does not come; says what was waited for.
        """
        deadline = time.monotonic() + timeout_s
        problem: Exception | None = None
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
                problem = None
            except (httpx.HTTPError, KeyError, TypeError) as error:
                problem = error
            time.sleep(0.2)
        raise AssertionError(f"waited {timeout_s:g} s for {what}: {problem or self.status()}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it and check that it leaves no process, port or file behind."""
        code, survivors = self.end(number)
        assert code == 0, f"exit code {code}\n{self.output_path.read_text()}"
        assert not survivors, survivors
        assert is_port_free(self.port)


def start_system(
    folder: Path, config: Mapping[str, Any] | None = None, options: Sequence[str] = ()
) -> System:
    """Start a system and wait until it answers; see ``start_child``."""
    return System(**vars(start_child(folder, config, options)))


def is_port_free(port: int) -> bool:
    """Whether nothing listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
