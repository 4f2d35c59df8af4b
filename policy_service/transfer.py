"""Carry what was learnt out of a store and into another, and forget it.

Works on any store; what a running system does meanwhile is counted as ever.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from policy_service.errors import ExportError
from policy_service.exports import Export, batches
from policy_service.store import CounterStore


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of an export.

    Attributes:
        num_added: Batches added.
        num_known: Batches that had been added before.
        num_late: Batches left out because their epochs have expired.
    """

    num_added: int = 0
    num_known: int = 0
    num_late: int = 0


async def take_export(store: CounterStore, target_model: str, name: str, now: float) -> Export:
    """Return all that was learnt.

    Args:
        store: Where it is.
        target_model: Of which model.
        name: A name that no other export has.
        now: Seconds since 1970.

    Raises:
        PolicyError: If the store does not answer or holds something else.
    """
    pool = await store.read(target_model, now)
    return Export(name, target_model, now, pool.epochs)


async def put_export(store: CounterStore, target_model: str, export: Export) -> Imported:
    """Add an export to what a store holds, exactly once however often it is called.

    Raises:
        ExportError: If it is of another target model; nothing is written then.
        PolicyError: If the store does not answer or holds something else; calling it again carries
            on where it ended.
    """
    if export.target_model != target_model:
        raise ExportError(
            f"an export of target model {export.target_model!r}, expected {target_model!r}"
        )
    pool = await store.read(target_model, time.time())
    counts = {"applied": 0, "duplicate": 0, "late": 0}
    for batch in batches(export, pool.generation):
        status = (await store.apply(batch)).status
        if status not in counts:
            raise ExportError(f"the store went back or was reset ({status}); import it again")
        counts[status] += 1
    return Imported(counts["applied"], counts["duplicate"], counts["late"])


async def forget(store: CounterStore, target_model: str) -> int:
    """Reset all counters of a model at once and return the generation that follows.

    Raises:
        PolicyError: If the store does not answer or holds something else.
    """
    pool = await store.read(target_model, time.time())
    return await store.reset(target_model, pool.generation)
