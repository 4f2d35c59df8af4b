"""Server-sent events: one a chunk, comments while nothing comes, errors as data, ``[DONE]``."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from replicas.ingress.choices import ChoiceEvent
from replicas.ingress.disconnect import until_disconnect
from replicas.ingress.errors import ApiError, internal
from replicas.ingress.responses import ChunkedResponse

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 15.0
"""Longest silence on a stream, and longest wait for the first token before the status is sent."""

_KEEP_ALIVE = b": keep-alive\n\n"
_DONE = b"data: [DONE]\n\n"


def encode_event(data: Mapping[str, Any]) -> bytes:
    """Return an event with JSON data."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"data: {text}\n\n".encode()


class Peeked:
    """Events of which the first is waited for before anything is sent.

    So a request that fails at once still gets a status of its own. A first event that takes long is
    left to come later, as whoever waits for the status would give up.
    """

    def __init__(self, events: AsyncGenerator[ChoiceEvent]) -> None:
        self._events = events
        self._next: asyncio.Future[ChoiceEvent] | None = None

    async def peek(self) -> None:
        """Wait for the first event.

        Raises:
            ApiError: If there is none because the request failed.
        """
        self._next = asyncio.ensure_future(anext(self._events))
        try:
            done, _ = await asyncio.wait((self._next,), timeout=KEEP_ALIVE_S)
            if done and self._next.exception() is not None:
                await self._next
        except BaseException:
            await self.aclose()
            raise

    async def next_within(self, timeout_s: float) -> ChoiceEvent | None:
        """Return the next event, or None if there was none in time.

        Raises:
            StopAsyncIteration: If there are no more.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._events))
        done, _ = await asyncio.wait((self._next,), timeout=timeout_s)
        if not done:
            return None
        event, self._next = self._next, None
        return event.result()

    async def aclose(self) -> None:
        """Cancel what is under way."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
            self._next = None
        await self._events.aclose()


async def encode_stream(events: Peeked, response: ChunkedResponse) -> AsyncGenerator[bytes]:
    """Yield a response as server-sent events; closing it cancels what is under way."""
    try:
        while True:
            event = await events.next_within(KEEP_ALIVE_S)
            if event is None:
                yield _KEEP_ALIVE
            else:
                data = b"".join(encode_event(chunk) for chunk in response.chunks(event))
                if data:
                    yield data
    except StopAsyncIteration:
        pass
    except ApiError as error:
        yield encode_event(error.body())
    except Exception as error:  # a boundary: the status is sent, so this is all a client can see
        logger.error("a stream failed", exc_info=error)
        yield encode_event(internal().body())
    finally:
        await events.aclose()
    yield _DONE


class EventStreamResponse(Response):
    """Sends server-sent events until they end or the client goes away, and then closes them."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncGenerator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **headers}
        )
        del self.headers["content-length"]
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything."""
        async with aclosing(self._content):
            await until_disconnect(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for data in self._content:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
