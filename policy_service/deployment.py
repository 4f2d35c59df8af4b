"""The Policy as a Ray Serve deployment of one replica.

Ready at once, with or without Redis: what is not acknowledged stays with the replicas. It holds
nothing that is not in Redis, so it may be killed at any time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ray import serve
from ray.serve import Application, Deployment

from policy_service.api import OutcomeBatch, SyncReply
from policy_service.availability import describe
from policy_service.config import PolicyConfig
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.store import RedisStore
from policy_service.service import PolicyService

logger = logging.getLogger(__name__)

Expose = Callable[[Callable[[], Awaitable[dict[str, Any]]]], int]
"""Shows metrics made of a status on some port, and returns which; 0 if on none."""


class PolicyActor:
    """Serves one ``PolicyService`` over Redis."""

    def __init__(
        self,
        config: PolicyConfig,
        redis: RedisConfig,
        target_model: str,
        expose: Expose | None = None,
    ) -> None:
        """Start publishing snapshots.

        Raises:
            PolicyConfigError: If the configuration names no Redis.
        """
        store = RedisStore(
            redis,
            prefix=config.key_prefix,
            epoch_s=config.epoch_s,
            retention_s=config.retention_s,
        )
        self._service = PolicyService(config, store, target_model, time.time)
        self._period_s = config.publish_period_s
        self._publisher = asyncio.get_running_loop().create_task(self._publish())
        self._num_publish_errors = 0
        self._metrics_port = expose(self.status) if expose is not None else 0

    async def sync(self, batches: list[OutcomeBatch], known_version: int) -> SyncReply:
        """Apply a replica's batches; see ``PolicyService.sync``."""
        return await self._service.sync(batches, known_version)

    async def dump(self) -> dict[str, Any]:
        """Return all counts by context and arm, freshly read if Redis is there."""
        await self._service.publish()
        return self._service.dump()

    async def status(self) -> dict[str, Any]:
        """Return how the store and the pool are."""
        own = {
            "pid": os.getpid(),
            "metrics_port": self._metrics_port,
            "publish_errors": self._num_publish_errors,
        }
        return {**self._service.status(), **own}

    async def check_health(self) -> None:
        """Raise if snapshots are no longer made; Redis being away is no illness of ours."""
        if self._publisher.done():
            raise RuntimeError("the publisher has stopped; expected it to run for ever")

    async def _publish(self) -> None:
        """Make snapshots for ever."""
        while True:
            try:
                await self._service.publish()
            except Exception as error:
                self._num_publish_errors += 1
                logger.exception("no snapshot was made: %s", describe(error))
            await asyncio.sleep(self._period_s)


PolicyDeployment: Deployment = serve.deployment(
    name="PolicyDeployment",
    num_replicas=1,
    max_ongoing_requests=256,
    health_check_period_s=2,
    health_check_timeout_s=10,
)(PolicyActor)
"""The Policy, to be bound to (config, redis, target_model, expose); one replica, always."""


def bind_policy(
    config: PolicyConfig,
    redis: RedisConfig,
    target_model: str,
    expose: Expose | None = None,
    **options: Any,
) -> Application:
    """Return the Policy as a node of a Serve application; its handle is what replicas are given.

    Args:
        config: Configuration of the policy service.
        redis: The Redis that keeps the counts.
        target_model: Name of the target model.
        expose: Shows its metrics; None to show none.
        options: Further options of the Serve deployment.
    """
    actor: dict[str, Any] = {"num_cpus": config.num_cpus}
    if config.label_selector:
        actor["label_selector"] = config.label_selector
    deployment = PolicyDeployment.options(ray_actor_options=actor, **options)
    return deployment.bind(config, redis, target_model, expose)
