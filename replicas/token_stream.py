"""Tokens on their way from a Verifier to an Ingress, beside the Serve call that asked for them.

A Serve call returns once, at the end; a stream out of Serve costs about a millisecond of CPU a
chunk on either side. So each Ingress listens on a port and each Verifier keeps one connection to
it, over which go all the tokens of a step in one frame. Nothing depends on it: what does not arrive
the Ingress takes from the result of the call. So a sender drops instead of waiting.

On the wire: frames of a 4-byte big-endian length and as many bytes of msgpack. The first frame of a
connection is the receiver's secret, every other one a list of chunks.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no types

from replicas.api import ReplyTo, TokenChunk, TokenLogprobs

logger = logging.getLogger(__name__)

MAX_FRAME_BYTES = 8 * 2**20
"""Largest frame that a receiver takes."""

MAX_HELLO_BYTES = 256
"""Largest first frame, before the sender is known."""

HELLO_TIMEOUT_S = 10.0
"""How long a receiver waits for the first frame."""

_LENGTH = struct.Struct(">I")


def encode_frame(body: bytes) -> bytes:
    """Return a frame: the body behind its length."""
    return _LENGTH.pack(len(body)) + body


def encode_chunks(chunks: Iterable[TokenChunk]) -> bytes:
    """Return the body of a frame of chunks."""
    rows = [
        (c.request_id, c.start, c.token_ids, [(entry.logprob, entry.top) for entry in c.logprobs])
        for c in chunks
    ]
    packed: bytes = msgpack.packb(rows)
    return packed


def decode_chunks(body: bytes) -> list[TokenChunk]:
    """Return the chunks of a frame.

    Raises:
        ValueError: If the body is not what ``encode_chunks`` gives.
    """
    try:
        rows = msgpack.unpackb(body, use_list=False)
        return [_chunk(*row) for row in rows]
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"expected a list of token chunks: {error}") from error


def _chunk(request_id: Any, start: Any, token_ids: Any, logprobs: Any) -> TokenChunk:
    return TokenChunk(
        str(request_id),
        int(start),
        tuple(map(int, token_ids)),
        tuple(
            TokenLogprobs(float(logprob), tuple((int(i), float(p)) for i, p in top))
            for logprob, top in logprobs
        ),
    )


async def read_frame(reader: asyncio.StreamReader, max_bytes: int) -> bytes:
    """Read one frame's body.

    Raises:
        ValueError: If it says that it is longer than ``max_bytes``; nothing of it was read.
        asyncio.IncompleteReadError: If the stream ended.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > max_bytes:
        raise ValueError(f"expected a frame of at most {max_bytes} bytes, got {length}")
    return await reader.readexactly(length)


class Subscription:
    """The chunks of one reply, in the order in which they arrive.

    Whoever subscribed may also put a None among them, to tell itself that no more will come.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[TokenChunk | None] = asyncio.Queue()

    def put(self, chunk: TokenChunk | None) -> None:
        """Append a chunk, or the mark that there are no more."""
        self._queue.put_nowait(chunk)

    async def get(self) -> TokenChunk | None:
        """Wait for the next chunk or mark."""
        return await self._queue.get()


class TokenReceiver:
    """Takes chunks from all Verifiers and gives each to whoever subscribed to its reply.

    Runs on the event loop that started it.

    Args:
        host: Address to listen on, and to tell Verifiers.
        max_frame_bytes: Longest frame to take; a longer one ends its connection.

    Attributes:
        counts: How many ``chunks`` were passed on and how many were ``unclaimed``; how many
            connections were ``accepted``, ``refused`` (wrong secret) and ``malformed``.
    """

    def __init__(self, host: str, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.counts: Counter[str] = Counter()
        self._host = host
        self._max_frame_bytes = max_frame_bytes
        self._token = secrets.token_hex(16)
        self._subscriptions: dict[str, Subscription] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def reply_to(self) -> ReplyTo:
        """Where Verifiers send tokens; known once started."""
        if self._server is None:
            raise RuntimeError("a token receiver has an address only while it is started")
        return ReplyTo(self._host, self._port, self._token)

    async def start(self) -> None:
        """Listen on a free port.

        Raises:
            OSError: If this machine does not have the address.
        """
        self._server = await asyncio.start_server(self._serve, self._host, 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    def subscribe(self, request_id: str) -> Subscription:
        """Return the stream of a reply's chunks; what came before is not in it.

        Raises:
            ValueError: If somebody has subscribed to this reply.
        """
        if request_id in self._subscriptions:
            raise ValueError(f"request {request_id!r} is already subscribed to")
        subscription = self._subscriptions[request_id] = Subscription()
        return subscription

    def unsubscribe(self, request_id: str) -> None:
        """Drop what still comes for a reply; unknown ones are no error."""
        self._subscriptions.pop(request_id, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._receive(reader)
        except (ValueError, TimeoutError) as error:
            self.counts["malformed"] += 1
            logger.warning("closed a token connection: %s", error)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the Verifier went away; its replies are resubmitted by who waits for them
        except asyncio.CancelledError:
            pass  # stopped; a server's connection task has nobody to tell
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            hello = await read_frame(reader, MAX_HELLO_BYTES)
        if not hmac.compare_digest(hello, self._token.encode()):
            self.counts["refused"] += 1
            return
        self.counts["accepted"] += 1
        while True:
            for chunk in decode_chunks(await read_frame(reader, self._max_frame_bytes)):
                self._route(chunk)

    def _route(self, chunk: TokenChunk) -> None:
        subscription = self._subscriptions.get(chunk.request_id)
        self.counts["unclaimed" if subscription is None else "chunks"] += 1
        if subscription is not None:
            subscription.put(chunk)
