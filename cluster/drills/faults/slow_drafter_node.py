"""A drafter's node becomes slow: its worker runs only a fifth of the time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cluster.drills.api import Drill, Outcome
from cluster.drills.stage import Stage

RUN_S, STOP_S = 0.1, 0.4
MAX_SILENCE_S = 6.0
"""Far above a drafter's deadline and what a busy machine adds."""


def run(stage: Stage) -> Outcome:
    """Slow one drafter down for as many replies as there are questions, and let it go again."""
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        traffic.wait_for_replies(len(stage.asked))
        before_s = traffic.now_s()
        slow = stage.cluster.nodes["d1"].pids("DrafterWorker")
        with slowed(slow):
            traffic.wait_for_replies(len(stage.asked))
        slow_s = traffic.now_s() - before_s
        recovery_s = stage.wait_until_whole()
        traffic.wait_for_replies(len(stage.asked))
    figures = {
        **traffic.figures(),
        f"{len(stage.asked)} replies before, s": round(before_s, 1),
        f"{len(stage.asked)} replies meanwhile, s": round(slow_s, 1),
        "time to recover, s": round(recovery_s, 1),
    }
    problems = traffic.problems() if slow else ["no drafter's worker was found on the node"]
    if traffic.longest_silence_s() > MAX_SILENCE_S:
        problems.append(f"a stream was silent for more than {MAX_SILENCE_S:g} s")
    return Outcome(figures, tuple(problems))


@contextmanager
def slowed(pids: list[int]) -> Iterator[None]:
    """Let processes run only now and then."""
    is_over = threading.Event()

    def slow_down() -> None:
        while not is_over.is_set():
            _send(pids, signal.SIGSTOP)
            is_over.wait(STOP_S)
            _send(pids, signal.SIGCONT)
            is_over.wait(RUN_S)

    thread = threading.Thread(target=slow_down, name="slow-down", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        _send(pids, signal.SIGCONT)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


DRILL = Drill(
    "A drafter's node runs a fifth of the time: no step waits for it for long.",
    run,
)
