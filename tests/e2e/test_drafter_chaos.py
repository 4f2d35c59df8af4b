"""Promise 2, at random: drafter workers die, stop and come back for minutes; replies do not change.

``BANDITSERVE_CHAOS_S`` says how many seconds of it (default 120).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from cluster.workloads import Prompt, read_prompts
from tests.conftest import StartSystem
from tests.e2e.client import chat, chat_all, openai_client
from tests.system import System, command_line

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.redis, pytest.mark.model]

CHAOS_S = float(os.environ.get("BANDITSERVE_CHAOS_S", "120"))
SEED = 5
USERS = 6
MAX_TOKENS = 32
NUM_WORKERS = {"prompt_lookup": 2, "suffix": 1}
# A worker that leaves three pings unanswered is replaced: long pauses are as good as its death.
HOSTING = {"ping_period_s": 0.5, "max_missed_pings": 3}
CONFIG: dict[str, Any] = {
    "drafters": {
        name: {"method": name, "num_replicas": number, **HOSTING}
        for name, number in NUM_WORKERS.items()
    }
}
ARMS: Sequence[Mapping[str, Any]] = (
    {"drafter": "prompt_lookup", "gamma": 4},
    {"drafter": "prompt_lookup", "gamma": 8},
    {"drafter": "suffix", "gamma": 8},
    {"learner": "ucbspec"},
)
FAULTS = ("kill", "kill", "terminate", "pause", "pause", "pause", "kill host")
PAUSE_S = (0.1, 6.0)
BETWEEN_S = (0.5, 3.0)
LEFT_OF_SESSIONS = ("num_sessions", "num_closing", "num_followed")
LEFT_OF_REQUESTS = ("open_draft_sessions", "num_running", "num_waiting")
MORE_BYTES = 48 << 20
"""What a worker may hold more afterwards, of some 105 MiB: past replies, and what malloc keeps."""


class Chaos:
    """Harms drafter workers at random; the same seed draws the same faults."""

    def __init__(self, system: System, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._system = system
        self._rng = random.Random(seed)
        self._deck: list[str] = []
        self._paused: dict[int, float] = {}

    def run(self, seconds: float, users: Sequence[Future[int]]) -> None:
        """Go on for so long, or until a user has ended; all that was paused goes on then."""
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                self._harm()
                pace_s = self._rng.uniform(*BETWEEN_S)
                if wait(users, timeout=pace_s, return_when=FIRST_COMPLETED).done:
                    return
                self._resume(time.monotonic())
        finally:
            self._resume(float("inf"))

    def _harm(self) -> None:
        if not self._deck:
            self._deck = self._rng.sample(FAULTS, len(FAULTS))
        fault = self._deck[-1]
        name = ":drafter_" if fault == "kill host" else "DrafterWorker"
        victims = [pid for pid in self._system.pids(name) if pid not in self._paused]
        if not victims:
            return
        self._deck.pop()
        self.counts[fault] += 1
        victim = self._rng.choice(victims)
        if fault == "pause":
            self._paused[victim] = time.monotonic() + self._rng.uniform(*PAUSE_S)
            send(victim, signal.SIGSTOP)
        else:
            send(victim, signal.SIGTERM if fault == "terminate" else signal.SIGKILL)

    def _resume(self, now: float) -> None:
        for pid in [pid for pid, until in self._paused.items() if until <= now]:
            del self._paused[pid]
            if "DrafterWorker" in command_line(pid):
                send(pid, signal.SIGCONT)


def send(pid: int, number: int) -> None:
    """Send a signal; a process that has just ended is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.fixture(scope="module")
def harmed(start: StartSystem) -> Iterator[System]:
    running = start(CONFIG)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return read_prompts()[::3][:12]


def ask_all(system: System, prompts: Sequence[Prompt], arm: Mapping[str, Any]) -> list[str]:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": MAX_TOKENS}
    with openai_client(system.base_url) as client:
        replies = chat_all(client, prompts, users=USERS, speculation=arm, **options)
    return [reply.text for reply in replies]


def ask_until(
    deadline: float, client: OpenAI, user: int, prompts: Sequence[Prompt], expected: Sequence[str]
) -> int:
    """Ask for one reply after the other and check each; return how many there were."""
    rng = random.Random(f"{SEED}/{user}")
    for num_replies in count():
        if time.monotonic() >= deadline:
            return num_replies
        index, arm = rng.randrange(len(prompts)), rng.choice(ARMS)
        reply = chat(
            client,
            prompts[index].turns[0],
            temperature=0,
            max_tokens=MAX_TOKENS,
            extra_body={"speculation": dict(arm)},
        )
        assert reply.text == expected[index], (prompts[index].id, arm)
    raise AssertionError("never reached")


def workers(status: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return what the workers that are up say of themselves, by drafter."""
    return {
        name: [
            entry["report"]["worker"]
            for entry in entries
            if not entry["is_away"] and entry["report"]["up"]
        ]
        for name, entries in status["drafters"].items()
    }


def is_at_rest(system: System) -> bool:
    """Whether all workers are there and nobody anywhere has a session."""
    status = system.status()
    found = workers(status)
    verifiers = [entry["report"] for entry in status["verifiers"] if not entry["is_away"]]
    left = [worker[key] for name in found for worker in found[name] for key in LEFT_OF_SESSIONS]
    left += [report[key] for report in verifiers for key in LEFT_OF_REQUESTS]
    return (
        {name: len(found[name]) for name in found} == NUM_WORKERS
        and len(verifiers) == 1
        and not any(left)
    )


def num_drafts(system: System) -> dict[str, int]:
    (verifier,) = system.status()["verifiers"]
    return {view["name"]: view["drafts"] for view in verifier["report"]["drafters"]}


def rss_bytes(system: System) -> dict[str, int]:
    """Return the resident memory of each drafter's largest worker."""
    return {
        name: max(_rss(int(worker["pid"])) for worker in found)
        for name, found in workers(system.status()).items()
    }


def _rss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def test_workers_come_and_go_at_random(harmed: System, prompts: list[Prompt]) -> None:
    expected = ask_all(harmed, prompts, {"mode": "off"})
    for arm in ARMS:
        assert ask_all(harmed, prompts, arm) == expected
    harmed.wait_until(lambda: is_at_rest(harmed), "sessions to end before")
    before = rss_bytes(harmed)

    chaos, deadline = Chaos(harmed, SEED), time.monotonic() + CHAOS_S
    with openai_client(harmed.base_url) as client, ThreadPoolExecutor(USERS) as pool:
        users = [
            pool.submit(ask_until, deadline, client, user, prompts, expected)
            for user in range(USERS)
        ]
        chaos.run(CHAOS_S, users)
    num_replies = [user.result() for user in users]
    assert all(num_replies), num_replies

    harmed.wait_until(lambda: is_at_rest(harmed), "workers to come back and sessions to end")
    (verifier,) = harmed.status()["verifiers"]
    assert all(view["done_without"] for view in verifier["report"]["drafters"])
    if CHAOS_S >= 30:
        assert set(chaos.counts) == set(FAULTS)

    drafts = num_drafts(harmed)
    for arm in ARMS:
        assert ask_all(harmed, prompts, arm) == expected
    after = num_drafts(harmed)
    assert all(after[name] > drafts[name] for name in NUM_WORKERS), (drafts, after)
    harmed.wait_until(lambda: is_at_rest(harmed), "sessions to end again")
    grown = {name: now - before[name] for name, now in rss_bytes(harmed).items()}
    assert all(more <= MORE_BYTES for more in grown.values()), (before, grown)
