"""A system in a process of its own: ``banditserve serve`` as a child, started and stopped.

Drills, load tests and the project's own tests harm and measure such systems.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import NotReadyError
from cluster.processes import command_line, descendants, end_all, kill
from cluster.redis_server import free_port
from models.child_process import with_packages

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.2


@dataclass
class ChildSystem:
    """A system that has been started and answers.

    Attributes:
        base_url: Where it answers, without ``/v1``.
        process: The command line's process.
        state_dir: Its state folder; Ray's logs come into ``logs`` when it stops.
        output_path: What it printed.
        temp_dir: Its temporary files.
    """

    base_url: str
    process: subprocess.Popen[bytes]
    state_dir: Path
    output_path: Path
    temp_dir: Path

    @property
    def port(self) -> int:
        """Its HTTP port."""
        return int(self.base_url.rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> tuple[int, list[str]]:
        """Stop it in good order.

        Returns:
            Its exit code, and the command lines of processes that it left behind, now killed.

        Raises:
            subprocess.TimeoutExpired: If it does not end; it is killed then.
        """
        started = descendants(self.process.pid)
        names = {pid: command_line(pid) for pid in started}
        self.process.send_signal(number)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        finally:
            survivors = [names[pid] for pid in end_all(started, grace_s=2.0)]
            self.close()
        return code, survivors

    def close(self) -> None:
        """End it without asking."""
        started = descendants(self.process.pid)
        if self.process.poll() is None:
            kill(self.process.pid)
            self.process.wait()
        end_all(started, grace_s=0.0)
        for logs in self.temp_dir.glob("banditserve-*/session_2*/logs"):
            shutil.move(logs, self.state_dir / "logs" / f"killed-{logs.parent.name}")
        shutil.rmtree(self.temp_dir, ignore_errors=True)


def start_child(
    folder: Path, config: Mapping[str, Any] | None = None, options: Sequence[str] = ()
) -> ChildSystem:
    """Start a system and wait until it answers.

    Args:
        folder: For its configuration, state and output.
        config: What the configuration file says.
        options: Further options of ``serve``.

    Raises:
        NotReadyError: If it does not answer in time or ends; with what it printed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config_path, output_path = folder / "config.yaml", folder / "output.txt"
    config_path.touch(mode=0o600)  # it may hold a password
    config_path.write_text(yaml.safe_dump(dict(config or {})))
    port, state_dir = free_port(), folder / "state"
    temp_dir = Path(tempfile.mkdtemp(prefix="bs-", dir="/tmp"))  # Ray wants short paths
    command = [sys.executable, "-m", "cluster", "serve", "--config", str(config_path)]
    command += ["--port", str(port), "--state-dir", str(state_dir), *options]
    with output_path.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**with_packages(os.environ), "TMPDIR": str(temp_dir)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    system = ChildSystem(f"http://127.0.0.1:{port}", process, state_dir, output_path, temp_dir)
    try:
        _wait_until_ready(system)
    except BaseException:
        system.close()
        raise
    return system


def _wait_until_ready(system: ChildSystem) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        output = system.output_path.read_text()
        if "\nReady: " in output:
            return
        if system.process.poll() is not None:
            raise NotReadyError(f"serve ended with {system.process.returncode}:\n{output}")
        time.sleep(_POLL_S)
    raise NotReadyError(f"not ready after {START_TIMEOUT_S:g} s:\n{output}")
