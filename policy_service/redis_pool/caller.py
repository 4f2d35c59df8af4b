"""Asks Redis: commands and scripts, each within a time, errors told apart.

Knows nothing of what is kept there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisClusterException, RedisError

from policy_service.errors import StoreSchemaError, StoreUnavailableError
from policy_service.redis_pool import scripts
from policy_service.redis_pool.connection import Client, disconnect


class RedisCaller:
    """Gives commands to a client.

    Args:
        client: The client; ``close`` closes it.
        timeout_s: Longest that an answer takes, connecting and retrying included.
    """

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def command(self, name: str, *args: Any, **options: Any) -> Any:
        """Return the answer to a command, called as the method of the client is.

        Raises:
            StoreUnavailableError: If Redis did not answer or answered with an error.
            StoreSchemaError: If a key has another type.
        """
        return await self._answer(getattr(self._client, name)(*args, **options))

    async def script(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
        """Return the answer of a script of ``scripts``.

        Raises:
            StoreUnavailableError: If Redis did not answer or answered with an error; what the
                script did is then unknown.
            StoreSchemaError: If a key has another type.
        """
        answer: list[Any] = await self._answer(self._evaluate(name, keys, args))
        return answer

    async def close(self) -> None:
        """Close all connections."""
        await disconnect(self._client)

    async def _evaluate(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        text, digest = _SCRIPTS[name]
        try:
            return await self._client.evalsha(digest, len(keys), *keys, *args)
        except NoScriptError:  # a server that has never seen it, or was started anew
            return await self._client.eval(text, len(keys), *keys, *args)

    async def _answer(self, call: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call
        except TimeoutError:
            raise StoreUnavailableError(
                f"Redis did not answer within {self._timeout_s} s"
            ) from None
        except (RedisError, RedisClusterException, OSError) as error:
            if "WRONGTYPE" in str(error):
                raise StoreSchemaError(f"a key in Redis has another type: {error}") from None
            if isinstance(error, ReadOnlyError):
                await self._leave_replica()
            raise StoreUnavailableError(f"Redis: {error}") from None

    async def _leave_replica(self) -> None:
        """Close the connections to a server that is no longer the primary.

        Behind a fixed address the next ones lead to the one that now is.
        """
        if isinstance(self._client, Redis):
            await self._client.connection_pool.disconnect(inuse_connections=False)


_SCRIPTS = {
    name: (text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    for name, text in vars(scripts).items()
    if name.isupper() and not name.startswith("_")
}
