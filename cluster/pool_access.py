"""Reach the counts of a system from the command line: straight in its Redis.

Not through HTTP: whoever may read, replace or forget what was learnt is not just any client with an
API key, and Redis knows already who may. A private Redis lets in the user who started it, for its
password stands in a file of theirs; another one is reached as the configuration says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cluster.config import SystemConfig
from cluster.errors import RedisUnreachableError
from cluster.redis_server import running_private_redis
from models.store import served_name
from policy_service.errors import StoreUnavailableError
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.store import RedisStore

T = TypeVar("T")


def with_store(config: SystemConfig, work: Callable[[RedisStore, str], Awaitable[T]]) -> T:
    """Return what ``work`` does with the store and the name of the target model.

    Raises:
        RedisUnreachableError: If there is no Redis, or it does not answer.
        PolicyError: If ``work`` raises it.
    """
    redis = _redis_of(config)

    async def run() -> T:
        store = RedisStore(
            redis,
            prefix=config.policy.key_prefix,
            epoch_s=config.policy.epoch_s,
            retention_s=config.policy.retention_s,
            timeout_s=redis.connect_timeout_s,
        )
        try:
            return await work(store, served_name(config.model))
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except StoreUnavailableError as error:
        raise RedisUnreachableError(f"Redis at {redis.url}: {error}") from error


def _redis_of(config: SystemConfig) -> RedisConfig:
    if config.redis.url is not None:
        return config.redis
    private = running_private_redis(config.state_dir)
    if private is None:
        raise RedisUnreachableError(
            f"no system runs with the state folder {config.state_dir}; start it, or name the Redis "
            "with --redis-url or in the file given with --config"
        )
    return private
