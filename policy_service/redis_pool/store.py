"""The store in Redis (or Valkey): one atomic script applies a batch exactly once.

Layout of the keys: ``schema``; the scripts: ``scripts``; asking the server: ``caller``. Works with
a single server, with one that sentinels watch over, and with a Redis Cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from policy_service.api import ANY_GENERATION, ArmCounts, CellKey, OutcomeBatch
from policy_service.epoch_cache import EpochCache
from policy_service.errors import PolicyConfigError
from policy_service.redis_pool.caller import RedisCaller
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.connection import connect
from policy_service.redis_pool.migration import take_over
from policy_service.redis_pool.schema import (
    SCHEMA_VERSION,
    Keys,
    corrupt,
    field_of,
    increments,
    parse_cells,
    parse_integer,
    wrong_schema,
)
from policy_service.store import Applied, Pool

MAX_APPLYING = 16
"""Most batches on their way at a time, each on a connection of its own; others wait, so that
snapshots are made also when there are many."""
MAX_MOVES = 200
"""Most cells that one script moves: bounds how long the server is busy with it."""


class RedisStore:
    """Counts in Redis.

    No call but ``read`` and ``move``, which may ask several times, takes much longer than
    ``timeout_s``. Nothing is connected before the first call.
    """

    WATERMARK_MARGIN_S: ClassVar[int] = 24 * 3600
    """How much longer than any counter it guards a watermark lives."""

    def __init__(
        self,
        config: RedisConfig,
        *,
        prefix: str = "banditserve",
        epoch_s: int = 600,
        retention_s: int = 3 * 24 * 3600,
        timeout_s: float = 0.8,
    ) -> None:
        """Prepare for a server; it need not be there yet.

        Args:
            config: Where it is and how to be let in.
            prefix: First part of every key.
            epoch_s: Length of an epoch.
            retention_s: Age, from its end, at which an epoch expires.
            timeout_s: Longest that an answer takes, connecting and one retry included.

        Raises:
            PolicyConfigError: If the configuration has no address.
        """
        try:
            self._caller = RedisCaller(connect(config, timeout_s), timeout_s)
        except ValueError as error:
            raise PolicyConfigError(str(error)) from None
        self._prefix = prefix
        self._lifetime_s = epoch_s + retention_s
        self._migrated: set[str] = set()
        self._cache: dict[tuple[str, int, int], EpochCache] = {}
        self._bytes: dict[tuple[str, int, int], tuple[str, int]] = {}
        self._places = asyncio.Semaphore(MAX_APPLYING)
        self._applying: set[asyncio.Future[None]] = set()

    async def apply(self, batch: OutcomeBatch) -> Applied:
        """Add a batch's counts if and only if it is the next of its incarnation."""
        async with self._places:
            ends = asyncio.get_running_loop().create_future()
            self._applying.add(ends)
            try:
                return await self._apply(batch)
            finally:
                self._applying.discard(ends)
                ends.set_result(None)

    async def _apply(self, batch: OutcomeBatch) -> Applied:
        keys = Keys(self._prefix, batch.target_model)
        generation = batch.generation
        if generation == ANY_GENERATION:
            generation = await self._generation(keys)
        names = (
            keys.schema,
            keys.generation,
            keys.seen(batch.replica, batch.incarnation),
            keys.counts(generation, batch.epoch),
            keys.epochs(generation),
        )
        args = (
            SCHEMA_VERSION,
            generation,
            batch.sequence,
            batch.epoch,
            batch.epoch + self._lifetime_s,
            self.WATERMARK_MARGIN_S,
            "\n".join(increments(batch.deltas)),
        )
        answer = await self._run(keys, batch.target_model, "APPLY", names, args)
        status, sequence = answer[:2]
        if status == "applied":
            cache = self._epoch(batch.target_model, generation, batch.epoch)
            cache.add(answer[2], answer[3], batch.deltas)
        return Applied(int(sequence), status)

    async def read(self, target_model: str, now: float) -> Pool:
        """Return the counts of all epochs that have not expired.

        Only epochs that somebody else has written to are fetched.
        """
        keys = Keys(self._prefix, target_model)
        await self._migrate(keys, target_model)
        generation = await self._generation(keys)
        revisions = await self._caller.command("hgetall", keys.epochs(generation))
        epochs = {}
        for text, revision in revisions.items():
            epoch = parse_integer(keys.epochs(generation), text)
            if epoch + self._lifetime_s > now:
                epochs[epoch] = await self._cells(keys, target_model, generation, epoch, revision)
        expired = [text for text in revisions if int(text) not in epochs]
        if expired:
            await self._caller.command("hdel", keys.epochs(generation), *expired)
        self._forget(target_model, generation, epochs)
        return Pool(generation, epochs)

    async def measure(self, target_model: str) -> Mapping[int, int]:
        """Return the bytes that Redis says each epoch takes; only changed ones are asked for."""
        keys = Keys(self._prefix, target_model)
        for (model, generation, epoch), cache in list(self._cache.items()):
            place = (model, generation, epoch)
            if model != target_model or self._bytes.get(place, ("", 0))[0] == cache.revision:
                continue
            key = keys.counts(generation, epoch)
            size = await self._caller.command("memory_usage", key, samples=20)
            self._bytes[place] = (cache.revision, int(size or 0))
        return {
            epoch: size
            for (model, _, epoch), (_, size) in self._bytes.items()
            if model == target_model
        }

    async def move(
        self, target_model: str, epoch: int, moves: Sequence[tuple[CellKey, CellKey]]
    ) -> None:
        """Add cells of an epoch to others and remove them, some at a time."""
        keys = Keys(self._prefix, target_model)
        generation = await self._generation(keys)
        names = (keys.counts(generation, epoch), keys.epochs(generation))
        for start in range(0, len(moves), MAX_MOVES):
            part = [field_of(key) for pair in moves[start : start + MAX_MOVES] for key in pair]
            await self._run(keys, target_model, "MOVE", names, (epoch, *part))

    async def drop(self, target_model: str, epoch: int) -> None:
        """Forget an epoch; batches that were in it stay applied."""
        keys = Keys(self._prefix, target_model)
        generation = await self._generation(keys)
        names = (keys.counts(generation, epoch), keys.epochs(generation))
        await self._run(keys, target_model, "DROP", names, (epoch,))

    async def reset(self, target_model: str, generation: int) -> int:
        """End a generation and return the one that follows.

        What was counted cannot be read from that moment on; it is removed afterwards.
        """
        keys = Keys(self._prefix, target_model)
        await self._migrate(keys, target_model)
        names = (keys.schema, keys.generation)
        _, now = await self._run(keys, target_model, "RESET", names, (SCHEMA_VERSION, generation))
        old = await self._caller.command("hkeys", keys.epochs(generation))
        for epoch in old:
            await self._caller.command("unlink", keys.counts(generation, epoch))
        await self._caller.command("unlink", keys.epochs(generation))
        return int(now)

    async def ping(self) -> None:
        """Check that Redis answers."""
        await self._caller.command("ping")

    async def close(self) -> None:
        """Close all connections."""
        await self._caller.close()

    async def _cells(
        self, keys: Keys, model: str, generation: int, epoch: int, revision: str
    ) -> Mapping[CellKey, ArmCounts]:
        """Return the cells of one epoch, fetched only if somebody else has changed them."""
        cache = self._epoch(model, generation, epoch)
        ours = set(self._applying)  # the revision may be one of theirs
        while ours and not cache.has(revision):
            _, ours = await asyncio.wait(ours, return_when=asyncio.FIRST_COMPLETED)
        if not cache.has(revision):
            names = (keys.counts(generation, epoch), keys.epochs(generation))
            found, text = await self._caller.script("READ", names, (epoch,))
            cache.load(found, parse_cells(text.split("\n") if text else ()))
        return cache.cells()

    async def _migrate(self, keys: Keys, model: str) -> None:
        """Take over what an older schema left, unless that was done."""
        found = await self._caller.command("get", keys.schema)
        if model in self._migrated and found == SCHEMA_VERSION:
            return
        await take_over(self._caller, keys, found)
        self._migrated.add(model)

    async def _run(
        self, keys: Keys, model: str, name: str, names: Sequence[str], args: Sequence[Any]
    ) -> list[Any]:
        """Run a script that checks what it finds.

        Raises:
            StoreSchemaError: If it found another schema or no integers.
        """
        answer = await self._caller.script(name, names, args)
        if answer[0] == "schema" and answer[1] == "1":
            await self._migrate(keys, model)
            answer = await self._caller.script(name, names, args)
        if answer[0] == "schema":
            raise wrong_schema(keys.schema, answer[1])
        if answer[0] == "corrupt":
            raise corrupt(answer[1])
        return answer

    async def _generation(self, keys: Keys) -> int:
        found = await self._caller.command("get", keys.generation)
        return parse_integer(keys.generation, found or "0")

    def _epoch(self, model: str, generation: int, epoch: int) -> EpochCache:
        return self._cache.setdefault((model, generation, epoch), EpochCache())

    def _forget(self, model: str, generation: int, epochs: Mapping[int, object]) -> None:
        """Forget what is known of epochs that are no more."""
        for place in [place for place in self._cache if place[0] == model]:
            if place[1] < generation or (place[1] == generation and place[2] not in epochs):
                del self._cache[place]
                self._bytes.pop(place, None)
