"""A host and its worker on a real Ray: found, called, killed and found again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from drafters.api import NoiseKey
from drafters.client import DrafterClient, DraftResult, DraftWanted
from drafters.config import DrafterAutoscaling, DrafterConfig
from drafters.host import bind_host
from drafters.members import Member, MemberKey
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

    def __init__(self, handle: DeploymentHandle[Any], config: DrafterConfig) -> None:
        self.client = DrafterClient({"pld": config}, vocab_size=100)
        self.members: tuple[Member, ...] = ()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(handle,), daemon=True)
        self._thread.start()

    def _run(self, handle: DeploymentHandle[Any]) -> None:
        watching = watch(
            {"pld": handle}, self._on_change, 0.2, wants_worker=self.client.wants_worker
        )
        self._task = self._loop.create_task(watching)
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


@contextmanager
def watching(
    handle: DeploymentHandle[Any], config: DrafterConfig = CONFIG
) -> Generator[Watched, None, None]:
    watched = Watched(handle, config)
    try:
        until(lambda: len(watched.members) == 1, START_S)
        yield watched
    finally:
        watched.stop()


@pytest.fixture
def watched(handle: DeploymentHandle[Any]) -> Iterator[Watched]:
    with watching(handle) as watched:
        yield watched


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


def test_what_a_sequence_teaches_comes_back_from_a_worker(handle: DeploymentHandle[Any]) -> None:
    """It never asks for a draft; its tokens come off the hot path and its end is the last."""
    tokens = [1, 2, 3, 4, 5] * 20
    left_over = num_sessions(handle)
    num_offered = sum(min(16, left) for left in range(1, 90))
    offered = accepted = 0
    follower: Watched

    def has_come() -> bool:
        nonlocal offered, accepted
        follower.client.close("bell")
        follower.draft("bell")
        for (name, version), counts in follower.client.take_shadow_counts().items():
            assert (name, version) == ("pld", follower.members[0].info.version)
            offered += sum(count[0] for count in counts.values())
            accepted += sum(count[1] for count in counts.values())
        return offered >= num_offered

    with watching(handle, CONFIG.model_copy(update={"shadow_share": 1.0})) as follower:
        for length in range(11, len(tokens)):
            follower.client.follow("shadow", tokens[:length])
        follower.client.close("shadow", tokens)
        until(has_come, RECOVERY_S)
        assert accepted == offered == num_offered
        follower.client.close("bell")
        until(lambda: num_sessions(handle) <= left_over, RECOVERY_S)
        until(lambda: host_status(handle)["worker"].get("num_closing") == 0, RECOVERY_S)
    status = host_status(handle)["worker"]
    assert (status["num_followed"], status["num_unfollowed"]) == (0, 0)


def test_workers_come_and_go_with_the_number_of_replicas(
    watched: Watched, handle: DeploymentHandle[Any]
) -> None:
    """The configuration is deployed anew; sessions move, and every Verifier knows by itself."""
    for num_replicas in (2, 1):
        before = {member.key for member in watched.members}
        config = CONFIG.model_copy(update={"num_replicas": num_replicas})
        application = bind_host("pld", config)

        def has_changed(before: set[MemberKey] = before, num: int = num_replicas) -> bool:
            assert watched.draft("moving").status in ("ok", "away", "late")
            keys = {member.key for member in watched.members}
            return len(keys) == num and not keys & before

        with ThreadPoolExecutor(1) as pool:
            deployed = pool.submit(serve.run, application, name="drafters", route_prefix=None)
            until(has_changed, START_S)
            deployed.result(START_S)
        results = [watched.draft(f"s{index}").status for index in range(8)]
        assert results == ["ok"] * 8
    watched.client.close("moving")


@pytest.mark.slow  # Serve hears from its replicas every ten seconds
def test_the_number_of_workers_follows_their_load(serve_port: int) -> None:
    autoscaling = DrafterAutoscaling(
        max_replicas=2, target_load=0.3, look_back_s=10.5, upscale_delay_s=0, downscale_delay_s=0
    )
    config = CONFIG.model_copy(update={"autoscaling": autoscaling, "max_sessions": 20})
    handle = serve.run(bind_host("pld", config), name="scaled", route_prefix=None)
    names = [f"s{index}" for index in range(9)]
    scaled: Watched

    def has_grown() -> bool:
        for name in names:
            scaled.draft(name)
        return len(scaled.members) == 2

    with watching(handle, config) as scaled:
        until(has_grown, START_S)
        for name in names:
            scaled.client.close(name)
        until(lambda: len(scaled.members) == 1, START_S)
    serve.delete("scaled")


@pytest.mark.slow  # Serve hears from its replicas every ten seconds
def test_a_drafter_goes_while_it_is_not_wanted_and_comes_back_when_it_is(serve_port: int) -> None:
    autoscaling = DrafterAutoscaling(
        min_replicas=0, max_replicas=1, look_back_s=10.5, upscale_delay_s=0, downscale_delay_s=0
    )
    config = CONFIG.model_copy(update={"autoscaling": autoscaling})
    handle = serve.run(bind_host("pld", config), name="asleep", route_prefix=None)
    with watching(handle, config) as sleeper:
        assert sleeper.draft("s").status == "ok"
        sleeper.client.close("s")
        until(lambda: not sleeper.members, START_S)
        # nobody wants it: it stays away
        with pytest.raises(AssertionError, match="not within"):
            until(lambda: sleeper.members, 3.0)
        assert sleeper.draft("t").status == "away"
        until(lambda: sleeper.draft("t").status == "ok", START_S)
    serve.delete("asleep")


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
