"""A host and its worker on a real Ray: found, called, killed and found again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from drafters.api import NoiseKey
from drafters.client import DrafterClient, DraftResult, DraftWanted
from drafters.config import DrafterConfig
from drafters.host import bind_host
from drafters.members import Member
from drafters.membership import watch

pytestmark = pytest.mark.ray

CONFIG = DrafterConfig(deadline_ms=2_000, ping_period_s=0.2)
TEXT = [1, 2, 3, 4, 1, 2]
START_S = 60.0
RECOVERY_S = 30.0


@pytest.fixture(scope="module")
def handle(serve_port: int) -> DeploymentHandle[Any]:
    return serve.run(bind_host("pld", CONFIG), name="drafters", route_prefix=None)


class Watched:
    """A client whose members come from a real watch on an event loop of its own."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self.client = DrafterClient({"pld": CONFIG}, vocab_size=100)
        self.members: tuple[Member, ...] = ()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(handle,))
        self._thread.start()

    def _run(self, handle: DeploymentHandle[Any]) -> None:
        self._task = self._loop.create_task(watch({"pld": handle}, self._on_change, period_s=0.2))
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    def _on_change(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self.client.set_members(members)

    def draft(self, session_id: str = "s", token_ids: list[int] | None = None) -> DraftResult:
        wanted = DraftWanted(session_id, "pld", 2, token_ids or TEXT, 3, NoiseKey(0, 0, 0.0))
        return self.client.draft([wanted])[0]

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self.client.stop()


@pytest.fixture
def watched(handle: DeploymentHandle[Any]) -> Iterator[Watched]:
    watched = Watched(handle)
    until(lambda: len(watched.members) == 1, START_S)
    yield watched
    watched.stop()


def until(condition: Callable[[], object], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.02)


def host_status(handle: DeploymentHandle[Any]) -> dict[str, Any]:
    status: dict[str, Any] = handle.status.remote().result(timeout_s=10)
    return status


def num_sessions(handle: DeploymentHandle[Any]) -> int:
    return int(host_status(handle)["worker"].get("num_sessions", -1))


def test_drafts_travel_and_sessions_end(watched: Watched, handle: DeploymentHandle[Any]) -> None:
    """PL-2: sessions of a worker return to zero."""
    result = watched.draft()
    assert (result.status, result.draft.token_ids) == ("ok", (3, 4))
    result = watched.draft(token_ids=[*TEXT, 3])
    assert (result.status, result.draft.token_ids) == ("ok", (4, 1))
    assert num_sessions(handle) == 1
    watched.client.close("s")
    until(lambda: num_sessions(handle) == 0, RECOVERY_S)
    status = host_status(handle)
    assert status["up"]
    assert status["worker"]["pid"] == watched.members[0].pid != os.getpid()


def test_a_killed_worker_is_done_without_and_comes_back(
    watched: Watched, handle: DeploymentHandle[Any]
) -> None:
    """PL-2: nothing raises, nobody waits past the deadline, a new incarnation takes over."""
    before = watched.members[0]
    restarts = host_status(handle)["restarts"]
    assert watched.draft().status == "ok"
    os.kill(before.pid, signal.SIGKILL)
    statuses = set()
    token_ids = list(TEXT)

    def recovered() -> bool:
        started = time.monotonic()
        token_ids.append(token_ids[-4])
        result = watched.draft(token_ids=token_ids)
        assert time.monotonic() - started < CONFIG.deadline_ms / 1e3 + 0.5
        statuses.add(result.status)
        if result.status == "ok":
            assert result.draft.token_ids == tuple(token_ids[-4:-2])
        is_new = [member.key for member in watched.members] not in ([], [before.key])
        return is_new and result.status == "ok"

    until(recovered, RECOVERY_S)
    assert "away" in statuses
    assert statuses <= {"ok", "away", "late"}
    after = watched.members[0]
    assert after.info.incarnation != before.info.incarnation
    assert after.replica_id == before.replica_id
    assert host_status(handle)["restarts"] == restarts + 1
    state = watched.client.status()[0]
    assert state["up"]
    assert state["done_without"] == sum(state["by_reason"].values()) > 0


def test_a_paused_worker_is_late_and_then_used_again(watched: Watched) -> None:
    pid = watched.members[0].pid
    assert watched.draft("p").status == "ok"
    os.kill(pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        assert watched.draft("p").status == "late"
        assert time.monotonic() - started < CONFIG.deadline_ms / 1e3 + 0.5
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: watched.draft("p").status == "ok", RECOVERY_S)
    watched.client.close("p")


def test_a_worker_ends_with_its_host(watched: Watched, handle: DeploymentHandle[Any]) -> None:
    """The host dies without a word: its worker goes, Serve replaces both, the client finds them."""
    before = watched.members[0]
    host_pid = host_status(handle)["pid"]
    os.kill(host_pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{before.pid}").exists(), RECOVERY_S)
    until(lambda: watched.draft().status == "ok" and watched.members[0].key != before.key, START_S)
    assert watched.members[0].replica_id != before.replica_id


def test_a_host_that_is_stopped_takes_its_worker_along(watched: Watched) -> None:
    """The client knows before the worker ends; later drafts cost no wait."""
    pid = watched.members[0].pid
    assert watched.draft("q").status == "ok"
    serve.delete("drafters", _blocking=False)
    until(lambda: not watched.members, RECOVERY_S)
    until(lambda: not Path(f"/proc/{pid}").exists(), RECOVERY_S)
    result = watched.draft("q")
    assert result.status == "away"
    assert result.wait_ms < CONFIG.deadline_ms / 10
