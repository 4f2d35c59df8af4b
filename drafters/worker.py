"""The drafter worker: a Ray actor that holds one drafter and answers calls to it.

Drafts are made one call at a time, by a thread that also does what was put off while no call waits
(``drafters.draft_queue``). Several Ray threads take calls in, so that a worker can tell how many
wait, and can refuse. ``ping``, ``info`` and ``status`` have a thread of their own, so that a worker
which is drafting still shows that it lives. It is started and owned by its host
(``drafters.host``) and called directly by the Verifiers (``drafters.transport``).
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import ray

from drafters.api import DraftBatch, DraftBatchReply, DrafterInfo
from drafters.config import DrafterConfig
from drafters.draft_queue import DraftQueue
from drafters.features import needs_hidden_states
from drafters.loading import load_drafter
from drafters.session_table import SessionTable
from drafters.sessions import DraftServer

CONTROL = "control"
"""Concurrency group of the calls that must be answered while a draft is made."""


class DrafterWorker:
    """One drafter in a process of its own; its incarnation is drawn when it starts.

    Raises:
        DrafterConfigError: If the drafter cannot be made.
    """

    def __init__(self, name: str, config: DrafterConfig) -> None:
        self._name = name
        self._server = DraftServer(
            load_drafter(config), uuid4().hex, time.perf_counter, SessionTable(config.max_sessions)
        )
        self._queue = DraftQueue(self._server, time.perf_counter, config.max_queued)

    def draft(self, batch: DraftBatch) -> DraftBatchReply:
        """Answer one call; see ``DraftServer.answer``."""
        return self._queue.call(batch)

    @ray.method(concurrency_group=CONTROL)
    def info(self) -> DrafterInfo:
        """Return what the drafter says of itself."""
        drafter = self._server.drafter
        return DrafterInfo(
            self._name,
            drafter.version,
            drafter.max_tokens,
            self._server.incarnation,
            needs_hidden_states(drafter),
        )

    @ray.method(concurrency_group=CONTROL)
    def ping(self) -> str:
        """Return the incarnation, and drop sessions that nobody uses any more."""
        self._server.sweep()
        self._queue.wake()
        return self._server.incarnation

    @ray.method(concurrency_group=CONTROL)
    def place(self) -> tuple[str, int]:
        """Return the Ray node and the process that the worker runs in."""
        return ray.get_runtime_context().get_node_id(), os.getpid()

    @ray.method(concurrency_group=CONTROL)
    def status(self) -> dict[str, Any]:
        """Return the incarnation, the process id and the load since the start."""
        return {
            "incarnation": self._server.incarnation,
            "pid": os.getpid(),
            "num_refused_calls": self._queue.num_refused,
            **asdict(self._server.load()),
        }


def worker_actor(max_queued: int, **options: Any) -> Any:
    """Return the Ray actor class of ``DrafterWorker``.

    It is never restarted by Ray: its host does that, under a new incarnation.

    Args:
        max_queued: As configured; a few more calls are taken in, to be refused.
        options: Options of the actor, such as resources.
    """
    actor: Any = ray.remote  # its types know only some of the options
    return actor(
        max_restarts=0,
        max_task_retries=0,
        max_concurrency=max_queued + 3,
        concurrency_groups={CONTROL: 1},
        **options,
    )(DrafterWorker)
