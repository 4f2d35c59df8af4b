from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from replicas.api import GenerationRequest, SamplingParams
from replicas.engine.commit import StepOutput
from replicas.engine.loop import EngineLoop
from replicas.errors import EngineStoppedError, QueueFullError

WAIT_S = 10.0


def request(name: str) -> GenerationRequest:
    return GenerationRequest(name, (1,), SamplingParams(max_tokens=1), seed=0)


class ScriptedCore:
    """Takes a step when it is let, and does one request a step."""

    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.cancelled: set[str] = set()
        self.may_step = threading.Semaphore(0)
        self.error: Exception | None = None

    @property
    def has_work(self) -> bool:
        return bool(self.waiting)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def add(self, one: GenerationRequest, arrived_at: float) -> None:
        self.waiting.append(one.request_id)

    def cancel(self, names: set[str]) -> None:
        self.cancelled |= names
        self.waiting = deque(name for name in self.waiting if name not in names)

    def step(self) -> StepOutput:
        assert self.may_step.acquire(timeout=WAIT_S)
        if self.error is not None:
            raise self.error
        return StepOutput(finished=[self.waiting.popleft()])  # type: ignore[list-item]  # names do

    def finish(self, output: StepOutput) -> None:
        return


class Running:
    """A loop over a scripted core, and what it handed out."""

    def __init__(self, **limits: Any) -> None:
        self.core = ScriptedCore()
        self.finished: list[Any] = []
        self.stepped = threading.Semaphore(0)
        self.stopped = threading.Event()
        self.why: BaseException | None = None
        options = {"max_queued": 10, "stall_s": 60.0, **limits}
        self.loop = EngineLoop(self.core, self._on_step, self._on_stop, **options)  # type: ignore[arg-type]  # the part of a core that a loop uses
        self.loop.start()

    def _on_step(self, output: StepOutput) -> None:
        self.finished += output.finished
        self.stepped.release()

    def _on_stop(self, error: BaseException | None) -> None:
        self.why = error
        self.stopped.set()

    def step(self) -> None:
        self.core.may_step.release()
        assert self.stepped.acquire(timeout=WAIT_S)


def test_requests_are_done_in_order() -> None:
    running = Running()
    for name in ("a", "b"):
        running.loop.submit(request(name))
        running.step()
    assert running.finished == ["a", "b"]
    running.loop.stop()
    assert running.stopped.wait(WAIT_S)
    assert running.why is None


def test_the_engines_thread_prepares_itself_first() -> None:
    names: list[str] = []
    running = Running(on_start=lambda: names.append(threading.current_thread().name))
    running.loop.submit(request("a"))
    running.step()
    assert names == ["engine"]
    running.loop.stop()


def test_a_thread_that_cannot_prepare_itself_is_a_stopped_engine() -> None:
    running = Running(on_start=lambda: divmod(1, 0))
    assert running.stopped.wait(WAIT_S)
    assert isinstance(running.why, ZeroDivisionError)


def test_one_request_too_many_is_refused() -> None:
    running = Running(max_queued=0)
    running.loop.submit(request("a"))
    with pytest.raises(QueueFullError, match="limit is 0"):
        running.loop.submit(request("b"))
    running.step()
    running.loop.stop()


def test_a_cancelled_request_is_dropped_before_the_next_step() -> None:
    running = Running()
    running.loop.submit(request("a"))
    running.loop.submit(request("b"))
    running.loop.cancel("b")
    running.step()
    running.loop.submit(request("c"))
    running.step()
    assert running.finished == ["a", "c"]
    running.loop.stop()


def test_an_error_in_a_step_ends_the_loop_and_is_told() -> None:
    running = Running()
    running.core.error = RuntimeError("broken")
    running.loop.submit(request("a"))
    running.core.may_step.release()
    assert running.stopped.wait(WAIT_S)
    assert running.why is running.core.error
    running.loop.stop()
    assert running.loop.problem() == "the engine's thread has ended"
    with pytest.raises(EngineStoppedError):
        running.loop.submit(request("b"))


def test_a_step_that_does_not_end_is_a_problem_and_idling_is_none() -> None:
    running = Running(stall_s=0.0)
    assert running.loop.problem() is None
    running.loop.submit(request("a"))
    deadline = threading.Event()
    for _ in range(1000):
        if running.loop.problem():
            break
        deadline.wait(0.01)
    assert "in one step" in str(running.loop.problem())
    running.step()
    running.loop.stop()
