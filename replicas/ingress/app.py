"""The routes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from replicas.ingress.access import Keys, read_json_body, read_keys
from replicas.ingress.choices import run_choices
from replicas.ingress.disconnect import until_disconnect
from replicas.ingress.errors import ApiError, unavailable
from replicas.ingress.explain import explanation
from replicas.ingress.learnt import visible_to
from replicas.ingress.meter import IngressMeter, MeterMiddleware
from replicas.ingress.metrics import Scraper
from replicas.ingress.middleware import RequestMiddleware, error_response
from replicas.ingress.parsing import parse_body
from replicas.ingress.responses import ChunkedResponse, WholeResponse
from replicas.ingress.schema import ChatBody, CompletionsBody, GenerationBody
from replicas.ingress.service import Caller, Serving, Work
from replicas.ingress.status import StatusCollector
from replicas.ingress.streaming import EventStreamResponse, Peeked, encode_stream
from replicas.metrics.exposition import CONTENT_TYPE

logger = logging.getLogger(__name__)

IGNORED_HEADER = "X-Ignored-Parameters"
"""Names the unknown fields that were ignored."""

READY_FOR_S = 10.0
"""For how long a token from a Verifier proves that one can answer."""

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class Routes:
    """Handlers of all routes.

    Args:
        serving: Turns requests into replies.
        collector: Asks the other parts how they are.
        own_status: What this Ingress says of itself.
        meter: Counts requests.
        scraper: Answers ``/metrics``; without it there is no such path.
    """

    def __init__(
        self,
        serving: Serving,
        collector: StatusCollector,
        own_status: Callable[[], dict[str, Any]],
        meter: IngressMeter | None = None,
        scraper: Scraper | None = None,
    ) -> None:
        self.meter = IngressMeter() if meter is None else meter
        self._scraper = scraper
        self._serving = serving
        self._collector = collector
        self._own_status = own_status
        self._keys = Keys(read_keys(serving.config.api_keys, serving.config.api_keys_file))

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter()
        router.add_api_route("/v1/chat/completions", self.chat, methods=["POST"])
        router.add_api_route("/v1/completions", self.completions, methods=["POST"])
        router.add_api_route("/v1/models", self.models, methods=["GET"])
        router.add_api_route("/v1/models/{name:path}", self.model, methods=["GET"])
        router.add_api_route("/v1/requests/{request_id}/explain", self.explain, methods=["GET"])
        router.add_api_route("/health", self.health, methods=["GET"])
        router.add_api_route("/status", self.status, methods=["GET"])
        router.add_api_route("/policy", self.policy, methods=["GET"])
        if self._scraper is not None:
            router.add_api_route("/metrics", self.metrics, methods=["GET"])
        return router

    async def chat(self, request: Request) -> Response:
        """Answer ``POST /v1/chat/completions``."""
        return await self._generate(request, ChatBody)

    async def completions(self, request: Request) -> Response:
        """Answer ``POST /v1/completions``."""
        return await self._generate(request, CompletionsBody)

    async def models(self, request: Request) -> Response:
        """Answer ``GET /v1/models``."""
        self._authorize(request)
        return JSONResponse({"object": "list", "data": [self._serving.describe_model()]})

    async def model(self, request: Request, name: str) -> Response:
        """Answer ``GET /v1/models/{name}``."""
        self._authorize(request)
        self._serving.check_model(name)
        return JSONResponse(self._serving.describe_model())

    async def explain(self, request: Request, request_id: str) -> Response:
        """Answer ``GET /v1/requests/{request_id}/explain``: every round of a recent request."""
        caller = self._authorize(request)
        answers = await self._collector.explain(request_id, caller.tenant)
        return JSONResponse(explanation(request_id, answers))

    async def health(self) -> Response:
        """Answer ``GET /health``: whether a request would be answered now."""
        since = time.monotonic() - self._serving.generator.last_success
        if since > READY_FOR_S and not await self._collector.is_any_verifier_alive():
            raise unavailable("no replica has loaded the model yet", "model_loading")
        return JSONResponse({"status": "ok"})

    async def status(self, request: Request) -> Response:
        """Answer ``GET /status``: what every part says of itself."""
        self._authorize(request)
        parts = await self._collector.collect()
        return JSONResponse({"model": self._serving.model.name, **parts, **self._own_status()})

    async def metrics(self, request: Request) -> Response:
        """Answer ``GET /metrics``: what every part measured."""
        assert self._scraper is not None
        if self._scraper.needs_key:
            self._authorize(request)
        return Response(await self._scraper.scrape(), headers={"Content-Type": CONTENT_TYPE})

    async def policy(self, request: Request) -> Response:
        """Answer ``GET /policy``: what was learnt, without what other tenants' contexts learnt."""
        caller = self._authorize(request)
        learnt = await self._collector.learnt()
        if learnt is None:
            raise unavailable("the policy does not answer", "policy_away")
        return JSONResponse(visible_to(caller.tenant, learnt) if self._keys else dict(learnt))

    def _authorize(self, request: Request) -> Caller:
        tenant = self._keys.authorize(request.headers.get("authorization"))
        return Caller(request.state.request_id, tenant, request.state.arrived_at)

    async def _generate(self, request: Request, kind: type[GenerationBody]) -> Response:
        caller = self._authorize(request)
        config = self._serving.config
        data = await read_json_body(request, config.max_body_bytes)
        body, ignored = parse_body(data, kind, config.strict_parameters)
        work = await self._serving.prepare(body, len(data), caller)
        self.meter.count_choices(body.n or 1)
        headers = {IGNORED_HEADER: _header_safe(ignored)} if ignored else {}
        if body.stream:
            return await self._stream(request, body, work, headers)
        answer = await until_disconnect(request.receive, self._whole(work))
        return JSONResponse(answer, headers=headers)

    async def _whole(self, work: Work) -> dict[str, Any]:
        response = WholeResponse(work.head)
        async with aclosing(run_choices(self._serving.generator, work.choices)) as events:
            async for event in events:
                response.add(event)
        return response.body()

    async def _stream(
        self, request: Request, body: GenerationBody, work: Work, headers: dict[str, str]
    ) -> Response:
        options = body.stream_options
        response = ChunkedResponse(
            work.head,
            has_usage=bool(options and options.include_usage),
            has_running_usage=bool(options and options.continuous_usage_stats),
        )
        events = Peeked(run_choices(self._serving.generator, work.choices))
        await until_disconnect(request.receive, events.peek())
        return EventStreamResponse(encode_stream(events, response), headers)


def _header_safe(names: tuple[str, ...]) -> str:
    return ", ".join(names).encode("ascii", "replace").decode().replace("\n", " ")[:1000]


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(ApiError(404, "not_found", "there is no such path"))
    message = f"the request cannot be answered: {error.detail}"
    code = "method_not_allowed" if error.status_code == 405 else "invalid_request"
    return error_response(ApiError(error.status_code, code, message))


def build_app(routes: Routes, lifespan: Lifespan | None = None, *, echo_id: bool = True) -> FastAPI:
    """Return the application.

    Args:
        routes: Its handlers.
        lifespan: What starts before the first request and stops after the last.
        echo_id: Send ``X-Request-Id`` back; false where the server in front does so.
    """
    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(routes.router())
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(RequestMiddleware, echo_id=echo_id)
    app.add_middleware(MeterMiddleware, meter=routes.meter)
    return app
