"""Around every request: its id, and the last word on errors."""

from __future__ import annotations

import logging
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from replicas.ingress.disconnect import ClientDisconnectedError
from replicas.ingress.errors import ApiError, internal

logger = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def error_response(error: ApiError) -> JSONResponse:
    """Return an error as a response."""
    return JSONResponse(error.body(), error.status, error.headers())


class RequestMiddleware:
    """Gives each HTTP request an id and turns what goes wrong into our shape of error.

    The id is the client's ``X-Request-Id`` if it is a plain one, else a new one; handlers find it
    as ``request.state.request_id``.

    Args:
        app: What is around.
        echo_id: Send the id back; false where the server in front does so.
    """

    def __init__(self, app: ASGIApp, echo_id: bool) -> None:
        self._app = app
        self._echo_id = echo_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                if self._echo_id:
                    MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnectedError:
            logger.info("request %s: the client went away", request_id)
        except Exception as error:  # a boundary: the client gets no more than that it failed
            logger.error("request %s failed", request_id, exc_info=error)
            if not has_started:
                await error_response(internal())(scope, receive, send_with_id)
