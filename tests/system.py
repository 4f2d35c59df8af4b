"""A running system for tests: the real command line in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from cluster.processes import descendants, end_all, kill
from cluster.redis_server import free_port

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0


@dataclass
class System:
    """A system that has been started and answers.

    Attributes:
        base_url: Where it answers, without ``/v1``.
        process: The command line's process.
        state_dir: Its state folder; Ray's logs come into ``logs`` when it stops.
        output_path: What it printed.
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
        started = descendants(self.process.pid)
        self.process.send_signal(number)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        finally:
            left = {pid: command_line(pid) for pid in started}
            survivors = [left[pid] for pid in end_all(started, grace_s=2.0)]
            self.close()
        assert code == 0, f"exit code {code}\n{self.output_path.read_text()}"
        assert not survivors, survivors
        assert is_port_free(self.port)

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


def start_system(
    folder: Path, config: Mapping[str, Any] | None = None, options: Sequence[str] = ()
) -> System:
    """Start a system and wait until it answers.

    Args:
        folder: For its configuration, state and output.
        config: What the configuration file says.
        options: Further options of ``serve``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config_path, output_path = folder / "config.yaml", folder / "output.txt"
    config_path.write_text(yaml.safe_dump(dict(config or {})))
    port, state_dir = free_port(), folder / "state"
    temp_dir = Path(tempfile.mkdtemp(prefix="bs-", dir="/tmp"))  # Ray wants short paths
    command = [sys.executable, "-m", "cluster", "serve", "--config", str(config_path)]
    command += ["--port", str(port), "--state-dir", str(state_dir), *options]
    with output_path.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(temp_dir)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    system = System(f"http://127.0.0.1:{port}", process, state_dir, output_path, temp_dir)
    try:
        _wait_until_ready(system)
    except BaseException:
        system.close()
        raise
    return system


def command_line(pid: int) -> str:
    """Return a process's command line; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def is_port_free(port: int) -> bool:
    """Whether nothing listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _wait_until_ready(system: System) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        output = system.output_path.read_text()
        if "\nReady: " in output:
            return
        if system.process.poll() is not None:
            raise AssertionError(f"serve ended with {system.process.returncode}:\n{output}")
        time.sleep(0.2)
    raise AssertionError(f"not ready after {START_TIMEOUT_S:g} s:\n{output}")
