"""``banditserve serve --address``: join a Ray and a Redis that run already, and leave them so."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cluster.redis_server import PrivateRedis
from tests.conftest import StartSystem
from tests.system import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.model]


class RayHead:
    """A Ray in a process of its own."""

    def __init__(self, temp_dir: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.ray_head", temp_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        self.address = self._readline()

    def actors(self) -> list[str]:
        """Return the names of all actors that live there."""
        assert self.process.stdin is not None
        print("actors", file=self.process.stdin, flush=True)
        names: list[str] = ast.literal_eval(self._readline())
        return names

    def stop(self) -> None:
        """Stop it."""
        self.process.communicate("stop\n", timeout=60)

    def _readline(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHead]:
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # loopback only
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with tempfile.TemporaryDirectory(prefix="rh-", dir="/tmp", ignore_cleanup_errors=True) as temp:
        head = RayHead(temp)
        yield head
        head.stop()


def test_a_ray_and_a_redis_that_were_named_are_used_and_left_running(
    head: RayHead, start: StartSystem, tmp_path: Path
) -> None:
    store = PrivateRedis(tmp_path / "redis", tmp_path / "redis.log")
    store.start()
    try:
        ours = start(options=["--address", head.address, "--redis-url", store.url])
        assert any("verifier" in name for name in head.actors())
        body = {"model": "smollm2", "prompt": "one two one two", "max_tokens": 4}
        answer = httpx.post(f"{ours.base_url}/v1/completions", json=body, timeout=120)
        assert answer.status_code == 200
        assert ours.pids("valkey-server") == ours.pids("raylet") == []
        ours.stop()
        assert head.actors() == []
        assert store.pid is not None
    finally:
        store.stop()
