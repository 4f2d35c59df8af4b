"""A Verifier without a model: it says what it is told to, over the real token stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI

from models.info import ModelInfo
from models.tokenizer import Tokenizer
from policy_service.config import PolicyConfig
from replicas.api import (
    GenerationRequest,
    GenerationResult,
    GenerationStats,
    RoundReport,
    TokenChunk,
    TokenLogprobs,
)
from replicas.config import IngressConfig, MetricsConfig
from replicas.detokenizer import IncrementalDetokenizer, StopScanner
from replicas.ingress.app import Routes, build_app
from replicas.ingress.generation import Generator as ChoiceGenerator
from replicas.ingress.generation import RetryPolicy
from replicas.ingress.meter import IngressMeter
from replicas.ingress.metrics import Part, Scraper
from replicas.ingress.service import Serving
from replicas.ingress.status import StatusCollector
from replicas.token_sender import TokenSender
from replicas.token_stream import TokenReceiver
from tests.unit.models.small_tokenizers import byte_level

EOS = 1
MODEL = "tiny"
ANSWER = "Hello there, it is a fine day — naïve 🙂!"

REPORT = RoundReport(
    arm="prompt_lookup:4",
    learner="ucbspec",
    reason="highest index",
    propensity=1.0,
    snapshot_version=3,
    estimates={"none": 1.0},
    draft_status="ok",
    num_drafted=4,
    num_verified=4,
    num_accepted=2,
    num_emitted=3,
    step_ms=9.5,
    draft_wait_ms=0.5,
    batch_size=1,
)


@dataclass
class Fate:
    """How one call goes.

    Attributes:
        step_tokens: Tokens in a chunk.
        streamed: Tokens that are streamed; None streams all.
        error: What is raised after those, if anything.
        hangs: Never end, until cancelled.
    """

    step_tokens: int = 3
    streamed: int | None = None
    error: Exception | None = None
    hangs: bool = False


@dataclass
class FakeVerifier:
    """Plays the Verifiers' handle."""

    answers: Callable[[GenerationRequest], str] = lambda _: ANSWER
    fates: list[Fate] = field(default_factory=list)
    tokenizer: Tokenizer = field(default_factory=byte_level)
    requests: list[GenerationRequest] = field(default_factory=list)
    num_cancelled: int = 0
    sender: TokenSender = field(default_factory=TokenSender)
    reports: list[Any] = field(default_factory=lambda: [{"replica": "v1"}])
    report_error: Exception | None = None

    @property
    def generate(self) -> FakeVerifier:
        return self

    def remote(self, request: GenerationRequest) -> FakeCall:
        self.requests.append(request)
        fate = self.fates.pop(0) if self.fates else Fate()
        return FakeCall(self, asyncio.ensure_future(self._serve(request, fate)))

    def broadcast(self, method_name: str, *args: Any) -> FakeBroadcast:
        if self.report_error is not None:
            raise self.report_error
        return FakeBroadcast(self.reports)

    async def _serve(self, request: GenerationRequest, fate: Fate) -> GenerationResult:
        result = self._result(request)
        first = len(request.resume_token_ids)
        last = len(result.token_ids) if fate.streamed is None else first + fate.streamed
        for start in range(first, last, fate.step_tokens):
            end = min(start + fate.step_tokens, last)
            self._send(request, result, start, end)
            await asyncio.sleep(0.01)
        if fate.hangs:
            await asyncio.Event().wait()
        if fate.error is not None:
            raise fate.error
        return result

    def _send(
        self, request: GenerationRequest, result: GenerationResult, start: int, end: int
    ) -> None:
        assert request.reply_to is not None
        ids = result.token_ids[start:end]
        logprobs = tuple(map(_logprobs, ids)) if request.sampling.logprobs is not None else ()
        chunk = TokenChunk(request.request_id, start, ids, logprobs)
        self.sender.send(request.reply_to, [chunk])

    def _result(self, request: GenerationRequest) -> GenerationResult:
        ids = [*self.tokenizer.encode(self.answers(request), add_special_tokens=False), EOS]
        params = request.sampling
        scanner = StopScanner(params.stop)
        detokenizer = IncrementalDetokenizer(self.tokenizer)
        num_old = len(request.resume_token_ids)
        assert tuple(ids[:num_old]) == request.resume_token_ids
        assert num_old < min(params.max_tokens, len(ids)), "the reply to resume is complete"
        reason: str | int | None = None
        num_text, finish = params.max_tokens, "length"
        for count, token_id in enumerate(ids[: params.max_tokens], start=1):
            is_end = token_id == EOS or token_id in params.stop_token_ids
            stop = None if is_end else scanner.push(detokenizer.push([token_id])).stop
            if is_end or stop is not None:
                finish = "stop"
                num_text = count - 1 if is_end else count
                reason = token_id if token_id in params.stop_token_ids else stop
                ids = ids[:count]
                break
        ids = ids[: params.max_tokens]
        new = ids[num_old:]
        return GenerationResult(
            request_id=request.request_id,
            token_ids=tuple(ids),
            finish_reason="stop" if finish == "stop" else "length",
            stop_reason=reason,
            num_text_tokens=min(num_text, len(ids)),
            logprobs=tuple(map(_logprobs, new)) if params.logprobs is not None else (),
            stats=GenerationStats(
                queue_ms=1.0,
                first_token_ms=10.0,
                total_ms=110.0,
                acceptance_histogram=(1, 0, 2),
                num_draft_tokens=12,
                num_accepted_tokens=4,
                num_cached_tokens=2,
            ),
            rounds=(REPORT,) if request.speculation.explain else (),
            replica="v1",
        )


def _logprobs(token_id: int) -> TokenLogprobs:
    return TokenLogprobs(-0.25, ((token_id, -0.25), (5, float("-inf"))))


class FakeCall:
    def __init__(self, verifier: FakeVerifier, task: asyncio.Future[GenerationResult]) -> None:
        self._verifier = verifier
        self._task = task

    def __await__(self) -> Generator[Any, None, GenerationResult]:
        return self._task.__await__()

    def cancel(self) -> None:
        if not self._task.done():
            self._verifier.num_cancelled += 1
        self._task.cancel()


class FakeBroadcast:
    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers

    async def results_async(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        assert timeout_s is not None
        assert return_exceptions
        return self._answers


@dataclass
class FakePolicy:
    answer: Any = field(default_factory=lambda: {"version": 7})

    @property
    def status(self) -> FakePolicy:
        return self

    @property
    def dump(self) -> FakePolicy:
        return self

    def remote(self) -> Any:
        async def answer() -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return answer()


@dataclass
class Server:
    """The application in this process, and who talks to it."""

    app: FastAPI
    client: httpx.AsyncClient
    verifier: FakeVerifier
    generator: ChoiceGenerator
    receiver: TokenReceiver

    async def post(self, path: str, body: Mapping[str, Any], **options: Any) -> httpx.Response:
        return await self.client.post(path, json={"model": MODEL, **body}, **options)

    async def chat(self, **body: Any) -> httpx.Response:
        return await self.post("/v1/chat/completions", {"messages": HELLO, **body})

    async def complete(self, **body: Any) -> httpx.Response:
        return await self.post("/v1/completions", {"prompt": "Hello", "max_tokens": 100, **body})


HELLO = [{"role": "user", "content": "Hello"}]


@asynccontextmanager
async def serving(
    verifier: FakeVerifier | None = None,
    config: IngressConfig | None = None,
    policy: FakePolicy | None = None,
    tokenizer: Tokenizer | None = None,
    context_length: int = 200,
    metrics: MetricsConfig | None = None,
    parts: Callable[[], Sequence[Part]] = tuple,
) -> AsyncIterator[Server]:
    """Run the application around a fake Verifier, with ``parts`` for its metrics."""
    verifier = verifier or FakeVerifier()
    config = config or IngressConfig(retry_window_s=5)
    receiver = TokenReceiver("127.0.0.1")
    await receiver.start()
    hosts = {"prompt_lookup": FakeVerifier(reports=[{"name": "prompt_lookup", "replica_id": "h1"}])}
    collector = StatusCollector(verifier, policy or FakePolicy(), hosts)
    generator = ChoiceGenerator(
        verifier,
        receiver,
        RetryPolicy(config.max_attempts, config.retry_window_s),
        collector.is_any_verifier_alive,
    )
    state = Serving(
        config=config,
        model=ModelInfo(MODEL, context_length, len(byte_level())),
        tokenizer=tokenizer or byte_level(),
        policy_config=PolicyConfig(gammas=(2, 4)),
        drafters=("prompt_lookup",),
        generator=generator,
    )
    meter = IngressMeter()
    scraper = Scraper(
        metrics or MetricsConfig(),
        {"model_name": MODEL, "replica": "i1"},
        lambda: meter.samples(MODEL, "i1", generator.counts),
        parts,
    )
    own_status = {"ingress": generator.counts}
    app = build_app(Routes(state, collector, lambda: dict(own_status), meter, scraper))
    transport = httpx.ASGITransport(app=app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield Server(app, client, verifier, generator, receiver)
    finally:
        await verifier.sender.close()
        await receiver.stop()
