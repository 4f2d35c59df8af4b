"""What Redis holds for a model, by arm: to compare with what replies told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from cluster.loadtest.checks import StoredRounds
from policy_service.api import SHADOW
from policy_service.config import PolicyConfig
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.store import RedisStore


async def stored_rounds(
    redis_url: str, policy: PolicyConfig, model: str
) -> dict[str, StoredRounds]:
    """Return the rounds that Redis holds, by arm, over all contexts and epochs.

    Raises:
        PolicyError: If Redis does not answer, or holds another schema.
    """
    store = RedisStore(
        RedisConfig(url=redis_url),
        prefix=policy.key_prefix,
        epoch_s=policy.epoch_s,
        retention_s=policy.retention_s,
    )
    try:
        pool = await store.read(model, time.time())
    finally:
        await store.close()
    found: dict[str, StoredRounds] = {}
    for counts_by_cell in pool.epochs.values():
        for key, counts in counts_by_cell.items():
            if key.context != SHADOW:
                old = found.get(key.arm, StoredRounds())
                found[key.arm] = StoredRounds(
                    old.rounds + counts.pulls + counts.failed,
                    old.verified + counts.verified,
                    old.accepted + counts.accepted,
                )
    return found


def gained(
    before: Mapping[str, StoredRounds], after: Mapping[str, StoredRounds]
) -> dict[str, StoredRounds]:
    """Return what was added, by arm."""
    none = StoredRounds()
    differences = {
        arm: StoredRounds(
            now.rounds - before.get(arm, none).rounds,
            now.verified - before.get(arm, none).verified,
            now.accepted - before.get(arm, none).accepted,
        )
        for arm, now in after.items()
    }
    return {arm: more for arm, more in differences.items() if more != none}


async def stored_when_still(
    redis_url: str, policy: PolicyConfig, model: str, timeout_s: float = 20.0
) -> dict[str, StoredRounds]:
    """Return what Redis holds once it has not grown for five times the period of exchange."""
    deadline = time.monotonic() + timeout_s
    before = await stored_rounds(redis_url, policy, model)
    while time.monotonic() < deadline:
        await asyncio.sleep(max(2.0, 5 * policy.sync_period_s))
        now = await stored_rounds(redis_url, policy, model)
        if now == before:
            break
        before = now
    return before
