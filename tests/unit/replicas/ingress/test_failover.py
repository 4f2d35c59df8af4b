"""A lost Verifier, a lost socket, a client that goes away: what the client sees, what is freed."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from ray.serve.exceptions import BackPressureError, RequestCancelledError

from models.errors import ModelError
from replicas.config import IngressConfig
from replicas.errors import EngineStoppedError, QueueFullError, RequestError
from replicas.ingress import generation
from replicas.ingress.faults import Fault, classify
from tests.unit.replicas.ingress.fakes import (
    ANSWER,
    MODEL,
    FakePolicy,
    FakeVerifier,
    Fate,
    Server,
    serving,
)
from tests.unit.replicas.ingress.test_generate import events_of, text_of


def run(body: Callable[[Server], Awaitable[None]], **options: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20), serving(**options) as server:
            await body(server)

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.002)


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "RETRY_DELAY_S", 0.001)


LOST = [ActorDiedError(), EngineStoppedError("stopped"), RequestCancelledError("r")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_another_verifier_goes_on(stream: bool, error: Exception) -> None:
    async def body(server: Server) -> None:
        response = await server.complete(stream=stream, logprobs=1)
        events = events_of(response) if stream else [response.json()]
        assert text_of(events) == ANSWER
        first, second, third = server.verifier.requests
        assert first.resume_token_ids == ()
        assert len(second.resume_token_ids) == 3
        assert len(third.resume_token_ids) == 9
        assert {r.seed for r in server.verifier.requests} == {first.seed}
        assert first.earlier_attempts == ()
        assert third.earlier_attempts == (first.request_id, second.request_id)
        assert events[-1]["banditserve"]["attempts"] == 3
        choices = [c for e in events for c in e["choices"] if c["logprobs"]]
        tokens = [t for c in choices for t in c["logprobs"]["token_logprobs"]]
        assert tokens == [-0.25] * len(tokens)
        assert server.generator.counts["resubmitted"] == 2

    fates = [Fate(streamed=4, error=error), Fate(streamed=7, error=error)]
    run(body, verifier=FakeVerifier(fates=fates))


@pytest.mark.parametrize("limit", [5, 100])
def test_a_reply_that_was_complete_but_for_its_result(limit: int) -> None:
    async def body(server: Server) -> None:
        whole = (await server.complete(max_tokens=limit)).json()["choices"][0]
        server.verifier.fates = [Fate(step_tokens=2, error=ActorDiedError())]
        again = events_of(await server.complete(max_tokens=limit, stream=True))
        assert text_of(again) == whole["text"]
        assert again[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]
        assert again[-1]["banditserve"]["attempts"] == 2

    run(body)


@pytest.mark.parametrize("stream", [False, True])
def test_without_the_socket_the_result_has_everything(stream: bool) -> None:
    async def body(server: Server) -> None:
        await server.receiver.stop()
        await server.receiver.start()
        server.receiver._token = "changed after the address was told"
        response = await server.complete(stream=stream, logprobs=1)
        events = events_of(response) if stream else [response.json()]
        assert text_of(events) == ANSWER

    run(body, verifier=FakeVerifier(fates=[Fate(streamed=0)]))


def test_a_gap_and_a_repetition_in_the_stream_are_mended() -> None:
    class Odd(FakeVerifier):
        def _send(self, request: Any, result: Any, start: int, end: int) -> None:
            if start == 6:
                return  # lost
            super()._send(request, result, max(0, start - 2), end)

    async def body(server: Server) -> None:
        events = events_of(await server.complete(stream=True, logprobs=0))
        assert text_of(events) == ANSWER
        tokens = [
            t
            for e in events
            for c in e["choices"]
            if c["logprobs"]
            for t in c["logprobs"]["tokens"]
        ]
        want = (await server.complete(logprobs=0)).json()["choices"][0]["logprobs"]["tokens"]
        assert tokens == want

    run(body, verifier=Odd())


def test_after_the_last_attempt_the_error_is_clean() -> None:
    async def body(server: Server) -> None:
        response = await server.complete()
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "service_unavailable"
        assert response.headers["retry-after"]
        assert len(server.verifier.requests) == 2

    fates = [Fate(streamed=0, error=ActorDiedError()) for _ in range(5)]
    config = IngressConfig(max_attempts=2)
    run(body, verifier=FakeVerifier(fates=fates), config=config)


def test_a_full_queue_elsewhere_does_not_end_a_reply_that_has_begun() -> None:
    async def body(server: Server) -> None:
        assert text_of(events_of(await server.complete(stream=True))) == ANSWER

    busy = [Fate(streamed=0, error=QueueFullError("")) for _ in range(6)]
    fates = [Fate(streamed=4, error=ActorDiedError()), *busy]
    run(body, verifier=FakeVerifier(fates=fates))


def test_nobody_there_at_all() -> None:
    async def body(server: Server) -> None:
        server.verifier.reports = []
        response = await server.complete()
        assert response.status_code == 503
        assert server.verifier.num_cancelled == 1

    verifier = FakeVerifier(fates=[Fate(streamed=0, hangs=True)])
    run(body, verifier=verifier, config=IngressConfig(retry_window_s=0))


class Client:
    """A client below httpx, which can go away in the middle of an answer."""

    def __init__(self, server: Server, body: dict[str, Any]) -> None:
        self._body: bytes | None = json.dumps({"model": MODEL, **body}).encode()
        self._gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/completions",
            "raw_path": b"/v1/completions",
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json")],
            "state": {},
        }
        self.task = asyncio.ensure_future(server.app(scope, self._receive, self._send))

    def go_away(self) -> None:
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("streamed", [0, 6])
@pytest.mark.parametrize("by_cancel", [False, True])
def test_when_the_client_goes_the_work_ends(
    n: int, stream: bool, streamed: int, by_cancel: bool
) -> None:
    """RS-5: in both modes; before the first token and after; however the server tells."""

    async def body(server: Server) -> None:
        client = Client(server, {"prompt": "x", "stream": stream, "n": n})
        await until(lambda: len(server.verifier.requests) == n)
        if streamed:
            await until(lambda: server.receiver.counts["chunks"] >= 2 * n)
        if by_cancel:
            client.task.cancel()
        else:
            client.go_away()
        await asyncio.gather(client.task, return_exceptions=True)
        assert server.verifier.num_cancelled == n
        assert server.receiver._subscriptions == {}
        assert len(asyncio.all_tasks()) < 6

    fates = [Fate(streamed=streamed, hangs=True) for _ in range(n)]
    run(body, verifier=FakeVerifier(fates=fates))


def test_one_choice_that_fails_ends_the_others() -> None:
    async def body(server: Server) -> None:
        response = await server.complete(n=2)
        assert response.status_code == 400
        assert server.verifier.num_cancelled == 1
        assert server.receiver._subscriptions == {}

    fates = [Fate(hangs=True), Fate(streamed=0, error=RequestError("no"))]
    run(body, verifier=FakeVerifier(fates=fates))


def task_error(cause: Exception) -> Any:
    make: Any = RayTaskError
    return make("generate", "Traceback ...", cause)


def wrapped(cause: Exception) -> Exception:
    error: Exception = task_error(cause).as_instanceof_cause()
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (RequestError("bad"), Fault.REQUEST),
        (QueueFullError("full"), Fault.BUSY),
        (EngineStoppedError("stopped"), Fault.LOST),
        (ModelError("odd"), Fault.INTERNAL),
        (ActorDiedError(), Fault.LOST),
        (ActorUnavailableError("away", None), Fault.LOST),
        (RequestCancelledError("r"), Fault.LOST),
        (BackPressureError(1, 1), Fault.BUSY),
        (ValueError("ours"), Fault.INTERNAL),
    ],
    ids=lambda value: type(value).__name__,
)
def test_faults_are_told_apart_through_ray(error: Exception, fault: Fault) -> None:
    assert classify(error) is fault
    if isinstance(error, RequestError | QueueFullError | EngineStoppedError | ModelError):
        assert classify(wrapped(error)) is fault
        assert classify(task_error(error)) is fault
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), vars(again)) == (type(error), vars(error))


def test_a_wrapped_complaint_keeps_its_words() -> None:
    async def body(server: Server) -> None:
        response = await server.complete()
        assert response.json()["error"] == {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "prompt",
            "code": "context_length_exceeded",
        }

    error = wrapped(RequestError("too long", "context_length_exceeded", "prompt"))
    run(body, verifier=FakeVerifier(fates=[Fate(streamed=0, error=error)]))


def test_health() -> None:
    async def body(server: Server) -> None:
        assert (await server.client.get("/health")).json() == {"status": "ok"}
        server.verifier.report_error = RuntimeError("no router")
        response = await server.client.get("/health")
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "model_loading"
        await server.complete(max_tokens=1)
        assert (await server.client.get("/health")).status_code == 200

    run(body)


def test_status_shows_who_is_away() -> None:
    policy = FakePolicy()

    async def body(server: Server) -> None:
        server.verifier.reports = [{"replica": "v1", "steps": 1}, {"replica": "v2"}]
        status = (await server.client.get("/status")).json()
        assert [v["name"] for v in status["verifiers"]] == ["v1", "v2"]
        assert status["verifiers"][0]["report"] == {"replica": "v1", "steps": 1}
        assert status["policy"]["report"] == {"version": 7}
        assert status["drafters"]["prompt_lookup"][0]["name"] == "h1"
        server.verifier.reports = [ActorDiedError(), {"replica": "v2"}]
        policy.answer = RuntimeError("away")
        await server.client.get("/status")
        status = (await server.client.get("/status")).json()
        first, second = status["verifiers"]
        assert (first["is_away"], first["num_misses"]) == (True, 2)
        assert first["away_since"] > 1.6e9
        assert first["report"] == {"replica": "v1", "steps": 1}
        assert second["is_away"] is False
        assert status["policy"]["is_away"] is True
        policy.answer = {"version": 8}
        status = (await server.client.get("/status")).json()
        assert status["policy"]["away_since"] is None
        assert status["policy"]["num_misses"] == 2
        server.verifier.report_error = RuntimeError("no router")
        assert (await server.client.get("/status")).status_code == 200

    run(body, policy=policy)
