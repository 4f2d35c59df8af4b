"""The store in Redis (or Valkey): one atomic script applies a batch exactly once.

Layout of the keys: ``policy_service.redis_schema``. Works with a single server, with a primary
behind a fixed address, and over TLS (``rediss://``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar, TypeVar, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisError

from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.errors import PolicyConfigError, StoreSchemaError, StoreUnavailableError
from policy_service.redis_schema import SCHEMA_VERSION, Keys, increments, parse_counts
from policy_service.store import Applied

T = TypeVar("T")


class RedisStore:
    """Counts in Redis.

    No call takes much longer than ``timeout_s``. Nothing is connected before the first call.
    """

    APPLY: ClassVar[str] = """
-- Applies one batch of counts exactly once; all of it or nothing.
-- KEYS[1]  schema version (string)
-- KEYS[2]  watermark of the batch's incarnation (string)
-- KEYS[3]  counters of the batch's epoch (hash)
-- KEYS[4]  revisions of all epochs (hash)
-- ARGV[1]  schema version of the caller
-- ARGV[2]  sequence of the batch
-- ARGV[3]  start of the epoch, seconds since 1970
-- ARGV[4]  when the epoch expires, seconds since 1970
-- ARGV[5]  how much longer the watermark must live, seconds
-- ARGV[6], ARGV[7], ...  field, increment, field, increment, ...
-- returns  {'applied' | 'duplicate' | 'gap', highest sequence applied}
--          {'schema', version found}, {'corrupt', field}: nothing was written
local schema = redis.call('GET', KEYS[1])
if schema and schema ~= ARGV[1] then return {'schema', schema} end

local sequence = tonumber(ARGV[2])
local seen = redis.call('GET', KEYS[2])
local last = tonumber(seen or '0')
if not last then return {'corrupt', KEYS[2]} end
if sequence <= last then return {'duplicate', last} end
if sequence > last + 1 then return {'gap', last} end

-- A script that fails half way is not rolled back, so look before writing.
for i = 6, #ARGV, 2 do
  local value = redis.call('HGET', KEYS[3], ARGV[i])
  if value and not (string.match(value, '^-?%d+$') and #value <= 17) then
    return {'corrupt', ARGV[i]}
  end
end
local count = redis.call('HGET', KEYS[4], ARGV[3])
local revision = count and tonumber(string.match(count, '^(%d+)')) or 0

local time = redis.call('TIME')
local now = tonumber(time[1])
local left = math.max(0, tonumber(ARGV[4]) - now)
local watermark_ttl = math.max(redis.call('TTL', KEYS[2]), left + tonumber(ARGV[5]))

redis.call('SET', KEYS[1], ARGV[1])
if left > 0 then
  for i = 6, #ARGV, 2 do redis.call('HINCRBY', KEYS[3], ARGV[i], ARGV[i + 1]) end
  redis.call('EXPIRE', KEYS[3], left)
  -- The server's time makes a revision differ from those that a failover lost.
  redis.call('HSET', KEYS[4], ARGV[3], (revision + 1) .. '@' .. time[1] .. '.' .. time[2])
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', watermark_ttl)
return {'applied', sequence}
"""

    WATERMARK_MARGIN_S: ClassVar[int] = 24 * 3600
    """How much longer than any counter it guards a watermark lives."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "banditserve",
        epoch_s: int = 600,
        retention_s: int = 3 * 24 * 3600,
        timeout_s: float = 0.8,
    ) -> None:
        """Prepare for a server; it need not be there yet.

        Args:
            url: ``redis://``, ``rediss://`` or ``unix://``, with password and database if needed.
            prefix: First part of every key.
            epoch_s: Length of an epoch.
            retention_s: Age, from its end, at which an epoch expires.
            timeout_s: Longest that a call takes, connecting and one retry included.

        Raises:
            PolicyConfigError: If the URL is not one.
        """
        try:
            self._redis: Redis = Redis.from_url(
                url,
                decode_responses=True,
                socket_connect_timeout=timeout_s / 2,
                socket_timeout=timeout_s,
                retry=Retry(ExponentialBackoff(cap=0.1, base=0.02), 1),
                health_check_interval=0,
            )
        except ValueError as error:
            raise PolicyConfigError(f"not a Redis URL: {error}") from None
        self._prefix = prefix
        self._lifetime_s = epoch_s + retention_s
        self._timeout_s = timeout_s
        self._script = self._redis.register_script(self.APPLY)
        self._cache: dict[tuple[str, str], tuple[str, Mapping[CellKey, ArmCounts]]] = {}

    async def apply(self, batch: OutcomeBatch) -> Applied:
        """Add a batch's counts if and only if it is the next of its incarnation."""
        keys = Keys(self._prefix, batch.target_model)
        reply = await self._answer(
            self._script(
                keys=[
                    keys.schema,
                    keys.seen(batch.replica, batch.incarnation),
                    keys.counts(batch.epoch),
                    keys.epochs,
                ],
                args=[
                    SCHEMA_VERSION,
                    batch.sequence,
                    batch.epoch,
                    batch.epoch + self._lifetime_s,
                    self.WATERMARK_MARGIN_S,
                    *increments(batch),
                ],
            )
        )
        status, value = reply
        if status in ("applied", "duplicate", "gap"):
            return Applied(int(value), status)
        if status == "schema":
            raise _wrong_schema(keys.schema, value)
        raise StoreSchemaError(f"not an integer in Redis: {value!r}; nothing was written")

    async def read(
        self, target_model: str, now: float
    ) -> Mapping[int, Mapping[CellKey, ArmCounts]]:
        """Return the counts of all epochs that have not expired.

        Only epochs whose revision has changed since the last read are fetched.
        """
        keys = Keys(self._prefix, target_model)
        await self._check_schema(keys)
        revisions = await self._answer(cast(Awaitable[Any], self._redis.hgetall(keys.epochs)))
        epochs = {}
        for epoch, revision in revisions.items():
            if not epoch.isdecimal():
                raise StoreSchemaError(f"{keys.epochs} holds {epoch!r}, expected an epoch's start")
            if int(epoch) + self._lifetime_s > now:
                epochs[int(epoch)] = await self._counts(keys.counts(epoch), target_model, revision)
        await self._forget_expired(keys, target_model, revisions, epochs)
        return epochs

    async def ping(self) -> None:
        """Check that Redis answers."""
        await self._answer(cast(Awaitable[Any], self._redis.ping()))

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()

    async def _counts(
        self, key: str, target_model: str, revision: str
    ) -> Mapping[CellKey, ArmCounts]:
        """Return the counters of one epoch, from the cache if they have not changed."""
        cached = self._cache.get((target_model, key))
        if cached is not None and cached[0] == revision:
            return cached[1]
        cells = parse_counts(await self._answer(cast(Awaitable[Any], self._redis.hgetall(key))))
        self._cache[target_model, key] = (revision, cells)
        return cells

    async def _forget_expired(
        self,
        keys: Keys,
        target_model: str,
        revisions: Mapping[str, str],
        epochs: Mapping[int, object],
    ) -> None:
        """Drop expired epochs from the index and from the cache."""
        expired = [epoch for epoch in revisions if int(epoch) not in epochs]
        if expired:
            await self._answer(cast(Awaitable[Any], self._redis.hdel(keys.epochs, *expired)))
        live = {(target_model, keys.counts(epoch)) for epoch in epochs}
        for name in [name for name in self._cache if name[0] == target_model and name not in live]:
            del self._cache[name]

    async def _check_schema(self, keys: Keys) -> None:
        """Raise StoreSchemaError if the store holds another schema; an empty one is fine."""
        found = await self._answer(cast(Awaitable[Any], self._redis.get(keys.schema)))
        if found is not None and found != SCHEMA_VERSION:
            raise _wrong_schema(keys.schema, found)

    async def _answer(self, call: Awaitable[T]) -> T:
        """Wait for Redis, at most for the timeout.

        Raises:
            StoreUnavailableError: If it did not answer or answered with an error.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call
        except TimeoutError:
            raise StoreUnavailableError(
                f"Redis did not answer within {self._timeout_s} s"
            ) from None
        except (RedisError, OSError) as error:
            if "WRONGTYPE" in str(error):
                raise StoreSchemaError(f"a key in Redis has another type: {error}") from None
            raise StoreUnavailableError(f"Redis: {error}") from None


def _wrong_schema(key: str, found: object) -> StoreSchemaError:
    return StoreSchemaError(
        f"{key} says schema {found!r}, this version knows {SCHEMA_VERSION!r}; nothing was written"
    )
