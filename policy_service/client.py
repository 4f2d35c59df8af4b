"""A Verifier's connection to the Policy: plans locally, exchanges counts in the background.

Other packages import this module and ``api`` only. It knows no Ray: the handle is whatever has
``sync.remote(batches, known_version)`` returning something to await.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from policy_service.api import (
    EMPTY_SNAPSHOT,
    ArmCounts,
    AskItem,
    CellKey,
    OutcomeBatch,
    Snapshot,
    SyncReply,
    TrimItem,
)
from policy_service.availability import Availability, describe
from policy_service.config import PolicyConfig
from policy_service.contexts import context_chain
from policy_service.contexts import tenant_of as context_tenant
from policy_service.ledger import Ledger
from policy_service.merge import age_weight
from policy_service.options import check_config, check_options
from policy_service.planner import Planner

__all__ = [
    "AskItem",
    "Planner",
    "PolicyClient",
    "TrimItem",
    "check_config",
    "check_options",
    "context_chain",
    "context_tenant",
]

logger = logging.getLogger(__name__)

SOON_ROUNDS = 256
"""So many rounds are sent without waiting for the end of the period."""
IDLE_PERIOD_S = 1.0
"""How often a replica with nothing to send asks for a snapshot."""
LONGEST_BACKOFF_S = 2.0


class PolicyClient:
    """Owns a replica's planner and its ledger.

    Belongs to one event loop, except for ``planner``, whose hot methods belong to the engine's
    thread. Nothing here raises because the Policy or Redis is away.
    """

    def __init__(
        self,
        config: PolicyConfig,
        replica: str,
        incarnation: str,
        target_model: str,
        policy_handle: Any,
        drafter_versions: Mapping[str, str],
        seed: int,
        further_counts: Callable[[], Mapping[CellKey, ArmCounts]] = dict,
    ) -> None:
        """Make a client; nothing is sent before ``run``.

        Args:
            config: Configuration of the policy service.
            replica: Name of the replica.
            incarnation: Drawn when this process started; no other process may ever have it.
            target_model: Name of the target model.
            policy_handle: Handle of the Policy deployment.
            drafter_versions: The drafters that there are and the version of each.
            seed: Seed of the learners' draws.
            further_counts: Returns what else was counted since it was last asked.

        Raises:
            PolicyConfigError: If the configured learner or a parameter of it is not valid.
        """
        self._config = config
        self._further_counts = further_counts
        self._handle = policy_handle
        self.planner = Planner(config, drafter_versions, np.random.default_rng(seed))
        self._ledger = Ledger(config, replica, incarnation, target_model)
        self._availability = Availability(
            "the pool of counts",
            logger,
            config.sync_period_s,
            max(LONGEST_BACKOFF_S, config.sync_period_s),
        )
        self._snapshot: Snapshot = EMPTY_SNAPSHOT
        self._exchanged_at = float("-inf")
        self._one_at_a_time = asyncio.Lock()
        self._has_answer = asyncio.Event()

    async def run(self) -> None:
        """Exchange counts for snapshots until cancelled."""
        loop = asyncio.get_running_loop()
        wake = asyncio.Event()
        self.planner.notify_after(SOON_ROUNDS, lambda: _set_from_thread(loop, wake))
        while True:
            wake.clear()  # before, so that what comes meanwhile wakes it again
            await self._sync()
            if self._availability.is_up:
                await _wait(wake, self._config.sync_period_s)
            else:
                await asyncio.sleep(self._availability.delay_s)

    async def first_answer(self, timeout_s: float) -> bool:
        """Wait until the Policy has answered ``run`` once; return whether it did in time.

        From then on new sequences are seeded with what it knew.
        """
        await _wait(self._has_answer, timeout_s)
        return self._has_answer.is_set()

    async def flush(self, timeout_s: float) -> bool:
        """Send what there is, before shutdown; return whether all of it was acknowledged.

        Call it after the engine has stopped and ``run`` was cancelled.
        """
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            await self._sync(left_s)
            if self._ledger.is_settled:
                return True
            left_s = deadline - time.monotonic()
            await asyncio.sleep(max(0.0, min(self._availability.delay_s, left_s)))
        return False

    def status(self) -> dict[str, Any]:
        """Return whether the Policy answers, and what waits for it.

        ``away_since`` is in seconds since 1970 or None; ``missed`` counts failed exchanges.
        """
        version = self._snapshot.version
        return {
            "up": self._availability.is_up,
            "away_since": self._availability.away_since,
            "missed": self._availability.num_failures,
            "reason": self._availability.reason,
            "unsent_cells": self._ledger.num_unsent_cells,
            "dropped_pulls": self._ledger.num_dropped_pulls,
            "lost_batches": self._ledger.num_lost_batches,
            "reset_pulls": self._ledger.num_reset_pulls,
            "snapshot_version": version,
            "snapshot_age_s": time.time() - self._snapshot.created_at if version else None,
        }

    async def _sync(self, timeout_s: float | None = None) -> None:
        """Exchange once, if there is something to send or the last time is long ago; never fails.

        Args:
            timeout_s: Longest to wait, if less than the configured time.
        """
        async with self._one_at_a_time:
            now = time.time()
            self._ledger.add(self.planner.take_deltas(), now)
            self._ledger.add(self._further_counts(), now)
            batches = self._ledger.outgoing(now)
            if not batches and 0 <= now - self._exchanged_at < IDLE_PERIOD_S:
                return
            self._exchanged_at = now
            try:
                limit_s = min(timeout_s or self._config.sync_timeout_s, self._config.sync_timeout_s)
                async with asyncio.timeout(limit_s):
                    reply = await self._call(batches)
            except Exception as error:
                self._availability.failed(time.time(), describe(error))
            else:
                self._accept(reply, is_answer=bool(batches))
                self._has_answer.set()
            self._age_snapshot()

    async def _call(self, batches: list[OutcomeBatch]) -> SyncReply:
        reply: SyncReply = await self._handle.sync.remote(batches, self._snapshot.version)
        return reply

    def _accept(self, reply: SyncReply, is_answer: bool) -> None:
        """Take over what the Policy said; ``is_answer``: batches had been sent."""
        now = time.time()
        if reply.snapshot is not None:
            self._take_snapshot(reply.snapshot)
        if reply.store_away:
            self._ledger.acknowledge(reply.applied_sequence, now)
            self._availability.failed(now, "the Policy cannot reach its store")
            return
        if is_answer:
            self._ledger.reconcile(reply.applied_sequence, now)
        self._availability.succeeded(now)

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        """Use another snapshot; if the counters were reset, forget what was gathered before."""
        if snapshot.generation > self._snapshot.generation and self._snapshot.version:
            self.planner.take_deltas()
            self._further_counts()
        self._ledger.begin_generation(snapshot.generation)
        self._snapshot = snapshot

    def _age_snapshot(self) -> None:
        """Give the planner the snapshot with the weight that its age leaves it."""
        age_s = time.time() - self._snapshot.created_at
        self.planner.set_snapshot(self._snapshot, age_weight(age_s, self._config.half_life_s))


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event, at most for so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


def _set_from_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event of a loop that may have ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
