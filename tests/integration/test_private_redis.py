"""The private Redis, with the real server."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from cluster.errors import RedisStartError, StateDirInUseError
from cluster.processes import descendants, end_all
from cluster.redis_server import PrivateRedis
from tests.system import ROOT, command_line

pytestmark = pytest.mark.redis

PARENT = """
import sys, time
from pathlib import Path
from cluster.redis_server import PrivateRedis
server = PrivateRedis(Path(sys.argv[1]), Path(sys.argv[1]) / "redis.log")
server.start()
print(server.pid, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateRedis]:
    server = PrivateRedis(tmp_path, tmp_path / "redis.log")
    server.start()
    yield server
    server.stop()


def client(server: PrivateRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url, socket_timeout=5.0)


def wait_until_ended(server: PrivateRedis) -> None:
    deadline = time.monotonic() + 10
    while server.pid is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_listens_on_loopback_and_wants_its_password(server: PrivateRedis) -> None:
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    with client(server) as ours:
        assert ours.ping()
        assert ours.config_get("bind")["bind"] == "127.0.0.1"
    assert server.url.split(":")[2].split("@")[0] not in command_line(server.pid or 0)


def test_the_password_is_in_a_file_that_only_we_read(server: PrivateRedis, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "redis" / "redis.conf").stat().st_mode) == 0o600


def test_counts_survive_a_stop_and_a_start(server: PrivateRedis) -> None:
    with client(server) as before:
        before.incrby("count", 7)
    server.stop()
    assert server.pid is None
    server.start()
    with client(server) as after:
        assert after.get("count") == b"7"


def test_a_killed_server_comes_back_where_it_was(server: PrivateRedis) -> None:
    url = server.url
    with client(server) as before:
        before.set("count", 7)
        before.execute_command("WAITAOF", 1, 0, 5000)  # until it is on disk
    server.kill()
    wait_until_ended(server)
    server.restart()
    assert server.url == url
    assert server.num_restarts == 1
    with client(server) as after:
        assert after.get("count") == b"7"


def test_a_second_system_with_the_same_state_folder_is_refused(
    server: PrivateRedis, tmp_path: Path
) -> None:
    second = PrivateRedis(tmp_path, tmp_path / "second.log")
    with pytest.raises(StateDirInUseError, match=f"in use by process {os.getpid()}; .*--state-dir"):
        second.start()
    second.stop()
    with client(server) as still:
        assert still.ping()


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        started = descendants(parent.pid)
        assert pid in started
        parent.kill()
    assert end_all(started, grace_s=10.0) == []
    again = PrivateRedis(tmp_path, tmp_path / "redis.log")
    again.start()
    again.stop()


def test_a_port_taken_meanwhile_is_one_clear_error(server: PrivateRedis) -> None:
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    server.kill()
    wait_until_ended(server)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(RedisStartError, match=r"exit code 1; its log is .*redis\.log"):
            server.restart()
    server.restart()
    with client(server) as after:
        assert after.ping()
