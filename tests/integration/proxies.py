"""What stands between a client and a server in tests: a connection that breaks, or speaks TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Passes bytes on to a server of this machine, and breaks when told.

    Attributes:
        cut_requests: Break the connection instead of passing on so many next requests.
        cut_replies: Break the connection instead of passing on so many next replies; the server
            has done then what was asked.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._target = port
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cut_requests = 0
        self.cut_replies = 0
        self.num_cut = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Listen on a port of 127.0.0.1."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                await asyncio.wait(
                    [
                        asyncio.create_task(self._pass_on(reader, server_writer, "cut_requests")),
                        asyncio.create_task(self._pass_on(server_reader, writer, "cut_replies")),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                server_writer.close()
        writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: str
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                if getattr(self, cut) > 0:
                    setattr(self, cut, getattr(self, cut) - 1)
                    self.num_cut += 1
                    return
                writer.write(data)
                await writer.drain()
