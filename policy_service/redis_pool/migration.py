"""Take over data of an older schema in Redis: once, whoever comes first, each epoch atomically.

Schema 2 is declared first, so that versions which know only schema 1 are refused from then on, and
the others add to what is taken over. A process that ends half way leaves epochs to the next one.
"""

from __future__ import annotations

import logging

from policy_service.redis_pool.caller import RedisCaller
from policy_service.redis_pool.schema import COUNTERS, SCHEMA_VERSION, Keys, corrupt, wrong_schema

logger = logging.getLogger(__name__)


async def take_over(caller: RedisCaller, keys: Keys, found: str | None) -> None:
    """Turn what schema 1 left of a model into schema 2; nothing to do is no error.

    Args:
        caller: Asks Redis.
        keys: Keys of the model.
        found: The schema that the data says it has; None if there is none yet.

    Raises:
        StoreSchemaError: If it is neither, or a field is corrupt; its epoch is left as it is.
        StoreUnavailableError: If Redis does not answer.
    """
    if found == "1":
        await caller.script("BEGIN_MIGRATION", (keys.schema,), ())
    elif found not in (None, SCHEMA_VERSION):
        raise wrong_schema(keys.schema, found)
    for epoch in await caller.command("hkeys", keys.old_epochs):
        names = (keys.old_counts(epoch), keys.old_epochs, keys.counts(0, epoch), keys.epochs(0))
        status, value = await caller.script("MIGRATE", names, (epoch, *COUNTERS))
        if status == "corrupt":
            raise corrupt(value)
        logger.info("epoch %s taken over from schema 1: %s cells", epoch, value)
