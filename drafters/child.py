"""A host's worker, as its host sees it: started, pinged, given up, killed.

Ray only; what a lost worker means is decided in ``drafters.host``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.exceptions import ActorDiedError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from drafters.api import DrafterInfo
from drafters.config import DrafterConfig
from drafters.worker import worker_actor

START_TIMEOUT_S = 300.0
"""Longest that a worker may take to start: process, libraries and model."""
WORKER_BUNDLE = 1
"""Index of the worker's bundle in its host's placement group; the host's own is 0."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Child:
    """A worker that has started.

    Attributes:
        handle: Its actor handle.
        info: What it says of itself.
        node_id: Ray node that it runs on.
        pid: Its process there.
    """

    handle: Any
    info: DrafterInfo
    node_id: str
    pid: int


async def start_child(name: str, config: DrafterConfig, group: PlacementGroup | None) -> Child:
    """Start a worker in its host's placement group and wait until it answers.

    The actor is not detached: it ends with the process that called this.

    Raises:
        RayError: If it could not start; nothing is left of it then.
        TimeoutError: If it did not start in time; nothing is left of it then.
    """
    options: dict[str, Any] = {"num_cpus": config.num_cpus, "num_gpus": config.num_gpus}
    if group is not None:
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=WORKER_BUNDLE
        )
    handle = worker_actor(config.max_queued, **options).remote(name, config)
    try:
        info = await _within(START_TIMEOUT_S, handle.info.remote())
        node_id, pid = await _within(START_TIMEOUT_S, handle.place.remote())
    except BaseException:
        kill(handle)
        raise
    return Child(handle, info, node_id, pid)


async def lost(child: Child, period_s: float, max_missed: int) -> str:
    """Ping the worker until it is lost; return why. Never raises, except when cancelled."""
    num_missed = 0
    while num_missed < max_missed:
        await asyncio.sleep(period_s)
        try:
            await _within(period_s, child.handle.ping.remote())
            num_missed = 0
        except ActorDiedError as error:
            return f"it died: {error}"
        except (RayError, TimeoutError):
            num_missed += 1
    return f"it left {num_missed} pings in a row unanswered"


async def child_status(child: Child, timeout_s: float) -> dict[str, Any]:
    """Return the worker's own status; empty if it does not answer in time."""
    with contextlib.suppress(RayError, TimeoutError):
        status: dict[str, Any] = await _within(timeout_s, child.handle.status.remote())
        return status
    return {}


def kill(handle: Any) -> None:
    """End a worker at once; one that has already ended is no error."""
    with contextlib.suppress(RayError, ValueError):
        ray.kill(handle)


async def _within(timeout_s: float, answer: Awaitable[ResultT]) -> ResultT:
    return await asyncio.wait_for(answer, timeout_s)
