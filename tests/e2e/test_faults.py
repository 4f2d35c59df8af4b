"""Promise 2: faults do not fail a request. Real kills, through HTTP, while replies stream."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cluster.workloads import read_prompts
from tests.conftest import StartSystem
from tests.e2e.client import MODEL, openai_client
from tests.system import System

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.model]

MAX_TOKENS = 32
NUM_STREAMS = 4
CONFIG: dict[str, Any] = {
    "verifier": {
        "num_replicas": 2,
        "num_cpus": 0.5,
        "engine": {"num_threads": 1, "cache_tokens": 8192},
    }
}


@pytest.fixture(scope="module")
def pair(start: StartSystem) -> Iterator[System]:
    """A system with two Verifiers, to be harmed."""
    running = start(CONFIG)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def expected(pair: System) -> list[str]:
    """The replies when nothing goes wrong."""
    return stream_all(pair, lambda: None)


def stream_all(
    system: System, once_all_stream: Callable[[], object], **speculation: object
) -> list[str]:
    """Stream several replies; call ``once_all_stream`` when each has begun.

    Args:
        system: Whom to ask.
        once_all_stream: What to do then.
        speculation: What the requests say about it; a draft may come or not if they say nothing.
    """
    client = openai_client(system.base_url)
    begun = threading.Barrier(NUM_STREAMS + 1, timeout=120)

    def stream(index: int) -> str:
        text = ""
        has_begun = False
        for chunk in client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": read_prompts()[3 * index].turns[0]}],
            stream=True,
            temperature=0.8,
            seed=index,
            max_tokens=MAX_TOKENS,
            extra_body={"ignore_eos": True, "speculation": speculation},
        ):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            if text and not has_begun:
                has_begun = True
                begun.wait()
        return text

    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        streams = [pool.submit(stream, index) for index in range(NUM_STREAMS)]
        begun.wait()
        once_all_stream()
        return [one.result() for one in streams]


def kill_one(system: System, name: str) -> int:
    """Kill the first process of that name and return its id."""
    victim = system.pids(name)[0]
    os.kill(victim, signal.SIGKILL)
    return victim


def drafter_views(system: System) -> list[dict[str, Any]]:
    """Return how each Verifier sees the drafter."""
    return [
        view
        for entry in system.status()["verifiers"]
        if not entry["is_away"]
        for view in entry["report"]["drafters"]
    ]


def test_the_drafters_worker_is_killed(pair: System, expected: list[str]) -> None:
    always = {"drafter": "prompt_lookup", "gamma": 4}
    without = sum(view["done_without"] for view in drafter_views(pair))
    assert stream_all(pair, lambda: kill_one(pair, "DrafterWorker"), **always) == expected
    after = drafter_views(pair)
    assert sum(view["done_without"] for view in after) > without
    pair.wait_until(
        lambda: all(view["up"] for view in drafter_views(pair)), "the drafter to come back"
    )
    assert stream_all(pair, lambda: None, **always) == expected
    assert sum(view["drafts"] for view in drafter_views(pair)) > sum(
        view["drafts"] for view in after
    )


def test_the_policy_is_killed(pair: System, expected: list[str]) -> None:
    assert stream_all(pair, lambda: kill_one(pair, ":policy")) == expected

    def is_back() -> bool:
        status = pair.status()
        return not status["policy"]["is_away"] and all(
            entry["report"]["policy"]["up"] for entry in status["verifiers"] if not entry["is_away"]
        )

    pair.wait_until(is_back, "the policy to come back")
    verifiers = pair.status()["verifiers"]
    assert sum(entry["report"]["policy"]["missed"] for entry in verifiers) > 0


def test_redis_is_killed(pair: System, expected: list[str]) -> None:
    def count() -> int:
        return int(pair.status()["policy"]["report"]["batches_applied"])

    assert stream_all(pair, lambda: kill_one(pair, "valkey-server")) == expected
    pair.wait_until(
        lambda: (
            pair.status()["policy"]["report"]["store_up"]
            and pair.status()["policy"]["report"]["store_failures"] > 0
        ),
        "Redis to be started again and found",
    )
    before = count()
    assert stream_all(pair, lambda: None) == expected
    pair.wait_until(lambda: count() > before, "new counts to be stored")


def test_a_verifier_is_killed(pair: System, expected: list[str]) -> None:
    victim: list[int] = []
    replies = stream_all(pair, lambda: victim.append(kill_one(pair, ":verifier")))
    assert replies == expected

    def is_replaced() -> bool:
        alive = [
            entry["report"]["pid"] for entry in pair.status()["verifiers"] if not entry["is_away"]
        ]
        return len(alive) == 2 and victim[0] not in alive

    pair.wait_until(is_replaced, "the Verifier to be replaced", timeout_s=180)
    assert any(entry["is_away"] for entry in pair.status()["verifiers"]) or is_replaced()
    assert stream_all(pair, lambda: None) == expected
