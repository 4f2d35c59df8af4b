"""Stop working for clients that have gone away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

ResultT = TypeVar("ResultT")


class ClientDisconnectedError(Exception):
    """The client has gone away; nobody reads an answer."""


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Do the work, or cancel it when the client goes away.

    The request's body must have been read. Returns, or raises, only when the work has ended.

    Raises:
        ClientDisconnectedError: If the client went away first.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnectedError
    finally:
        for part in (task, gone):
            part.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
