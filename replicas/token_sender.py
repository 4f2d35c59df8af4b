"""The Verifier's end of the token stream: one connection an Ingress, and never a wait.

See ``replicas.token_stream`` for what it is for and what goes over the wire.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress

from replicas.api import ReplyTo, TokenChunk
from replicas.token_stream import encode_chunks, encode_frame

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
"""How long connecting to an Ingress may take."""

RETRY_AFTER_S = 1.0
"""How long an Ingress that could not be reached is left alone."""

MAX_BUFFERED_CHUNKS = 4096
"""Most chunks that wait for one Ingress; more are dropped."""

MAX_FRAME_CHUNKS = 256
"""Most chunks in a frame, which keeps it under the receiver's limit."""


class _Peer:
    """Connection to one Ingress and what waits for it."""

    def __init__(self, address: ReplyTo, max_buffered_chunks: int) -> None:
        self.address = address
        self.retry_at = 0.0  # loop time before which nothing is sent
        self.task: asyncio.Task[None] | None = None
        self._chunks: deque[TokenChunk] = deque()
        self._max_buffered_chunks = max_buffered_chunks
        self._arrived = asyncio.Event()

    def put(self, chunks: Sequence[TokenChunk]) -> int:
        """Buffer chunks; return how many found no room."""
        num_kept = max(0, min(len(chunks), self._max_buffered_chunks - len(self._chunks)))
        self._chunks.extend(chunks[:num_kept])
        self._arrived.set()
        return len(chunks) - num_kept

    def clear(self) -> int:
        """Forget what is buffered; return how many chunks that was."""
        num_dropped = len(self._chunks)
        self._chunks.clear()
        return num_dropped

    async def pump(self) -> None:
        """Connect, and write what is put until the Ingress closes the connection.

        Raises:
            OSError: If the connection cannot be made, or ends.
            TimeoutError: If it cannot be made in time.
        """
        address = self.address
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        end = asyncio.ensure_future(_closed(reader))
        try:
            writer.write(encode_frame(address.token.encode()))
            while await self._wait(end):
                writer.write(encode_frame(encode_chunks(self._take())))
                await writer.drain()
            raise ConnectionResetError("the Ingress closed the token connection")
        finally:
            end.cancel()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _wait(self, end: asyncio.Future[None]) -> bool:
        """Wait for chunks or the end of the connection; return whether it still stands."""
        if not self._chunks and not end.done():
            self._arrived.clear()
            arrived = asyncio.ensure_future(self._arrived.wait())
            try:
                await asyncio.wait((arrived, end), return_when=asyncio.FIRST_COMPLETED)
            finally:
                arrived.cancel()
        return not end.done()

    def _take(self) -> list[TokenChunk]:
        num_taken = min(len(self._chunks), MAX_FRAME_CHUNKS)
        return [self._chunks.popleft() for _ in range(num_taken)]


async def _closed(reader: asyncio.StreamReader) -> None:
    """Wait until the other side has closed the connection; it never sends anything."""
    with suppress(OSError):
        await reader.read(1)


class TokenSender:
    """Sends chunks to the Ingresses that asked for them.

    Everything runs on one event loop; another thread calls
    ``loop.call_soon_threadsafe(sender.send, reply_to, chunks)``.

    Args:
        max_buffered_chunks: Most chunks that wait for one Ingress.

    Attributes:
        counts: How many chunks were handed over (``chunks``), how many were ``dropped`` (no room,
            or the Ingress not reached), and how often a connection was ``lost``.
    """

    def __init__(self, max_buffered_chunks: int = MAX_BUFFERED_CHUNKS) -> None:
        self.counts: Counter[str] = Counter()
        self._max_buffered_chunks = max_buffered_chunks
        self._peers: dict[ReplyTo, _Peer] = {}

    def send(self, reply_to: ReplyTo, chunks: Sequence[TokenChunk]) -> None:
        """Hand over the chunks of a step for one Ingress. Never waits; may drop."""
        loop = asyncio.get_running_loop()
        peer = self._peers.get(reply_to)
        if peer is None:
            self._forget_unreached(loop.time())
            peer = self._peers[reply_to] = _Peer(reply_to, self._max_buffered_chunks)
        self.counts["chunks"] += len(chunks)
        if peer.task is None and loop.time() < peer.retry_at:
            self.counts["dropped"] += len(chunks)
            return
        self.counts["dropped"] += peer.put(chunks)
        if peer.task is None:
            peer.task = loop.create_task(self._run(peer))

    async def close(self) -> None:
        """Close all connections; what was not written is dropped."""
        tasks = [peer.task for peer in self._peers.values() if peer.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._peers.clear()

    async def _run(self, peer: _Peer) -> None:
        try:
            await peer.pump()
        except (OSError, TimeoutError) as error:
            self.counts["lost"] += 1
            peer.retry_at = asyncio.get_running_loop().time() + RETRY_AFTER_S
            where = f"{peer.address.host}:{peer.address.port}"
            logger.warning("tokens for %s wait for the end of their call: %r", where, error)
        finally:
            self.counts["dropped"] += peer.clear()
            peer.task = None

    def _forget_unreached(self, now: float) -> None:
        """Forget Ingresses that could not be reached and may be gone for good."""
        gone = [a for a, p in self._peers.items() if p.task is None and p.retry_at <= now]
        for address in gone:
            del self._peers[address]
