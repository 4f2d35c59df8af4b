"""The drafter host: a Serve deployment each replica of which owns one drafter worker.

So readiness, draining, health and placement of drafters come with Serve, while drafts take the
short way: Verifiers call the worker's actor directly. Host and worker share a placement group, and
the worker ends with its host. Serve takes a host that is to stop out of membership first and lets
at least ``graceful_shutdown_wait_loop_s`` (2 s) pass before the host ends its worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.util import get_current_placement_group

from drafters.autoscaling import LoadMeter, LoadPolicy
from drafters.child import Child, child_status, kill, lost, start_child
from drafters.config import DrafterAutoscaling, DrafterConfig
from drafters.loading import check_config
from drafters.members import Member

logger = logging.getLogger(__name__)

Expose = Callable[[Callable[[], Awaitable[dict[str, Any]]]], int]
"""Shows metrics made of a status on some port, and returns which; 0 if on none."""

MAX_START_FAILURES = 3
"""A host whose worker fails to start again this often in a row asks Serve to replace it."""
MAX_START_DELAY_S = 10.0
"""Longest pause between two tries to start a worker."""
MAX_ONGOING_REQUESTS = 64
"""Calls to ``member`` and ``status`` that a host answers at once."""


class DrafterHostDeployment:
    """Owns one drafter worker: starts it, pings it, replaces it when it is lost.

    Ready once the worker has started for the first time.
    """

    def __init__(self, name: str, config: DrafterConfig, expose: Expose | None = None) -> None:
        self._name = name
        self._config = config
        self._replica_id = serve.get_replica_context().replica_id.unique_id
        self._group = get_current_placement_group()
        self._child: Child | None = None
        self._num_starts = 0
        self._num_start_failures = 0
        self._last_failure = ""
        self._meter = LoadMeter(config.max_sessions)
        self._tried = asyncio.Event()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())
        self._metrics_port = expose(self.status) if expose is not None else 0

    async def member(self) -> Member | None:
        """Return the worker and how to reach it; None while there is none."""
        child = self._child
        if child is None:
            return None
        return Member(
            self._name,
            self._replica_id,
            child.info,
            child.handle,
            node_id=child.node_id,
            pid=child.pid,
        )

    async def status(self) -> dict[str, Any]:
        """Return whether the worker is up, how often it was restarted, and its own status."""
        child = self._child
        load = await child_status(child, self._config.ping_period_s) if child else {}
        return {
            "name": self._name,
            "replica_id": self._replica_id,
            "pid": os.getpid(),
            "metrics_port": self._metrics_port,
            "up": child is not None,
            "restarts": max(0, self._num_starts - 1),
            "last_failure": self._last_failure,
            "worker": load,
        }

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the worker's load, which Serve cannot see; asked for by Serve."""
        child = self._child
        load = await child_status(child, self._config.ping_period_s) if child else {}
        return self._meter.measure(load, time.monotonic())

    async def check_health(self) -> None:
        """Tell Serve whether this host can do its work.

        Raises:
            RuntimeError: If the worker did not start, at first or several times in a row.
        """
        await self._tried.wait()
        never_up = self._num_starts == 0
        if self._num_start_failures >= (1 if never_up else MAX_START_FAILURES):
            raise RuntimeError(
                f"the worker of drafter {self._name} does not start: {self._last_failure}"
            )

    async def _supervise(self) -> None:
        while True:
            child = await self._start()
            if child is None:
                await asyncio.sleep(min(MAX_START_DELAY_S, 0.5 * 2**self._num_start_failures))
                continue
            reason = await lost(child, self._config.ping_period_s, self._config.max_missed_pings)
            self._child = None
            self._last_failure = reason
            kill(child.handle)
            logger.warning("drafter %s lost its worker: %s", self._name, reason)

    async def _start(self) -> Child | None:
        try:
            child = await start_child(self._name, self._config, self._group)
        except Exception as error:
            self._num_start_failures += 1
            self._last_failure = str(error) or type(error).__name__
            logger.exception("the worker of drafter %s does not start", self._name)
            return None
        else:
            self._child = child
            self._num_starts += 1
            self._num_start_failures = 0
            return child
        finally:
            self._tried.set()

    def __del__(self) -> None:
        """End the worker. Serve calls this last, when the host has long left membership."""
        supervisor = getattr(self, "_supervisor", None)
        if supervisor is not None:
            supervisor.cancel()
        child = getattr(self, "_child", None)
        if child is not None:
            kill(child.handle)
            self._child = None


def bind_host(name: str, config: DrafterConfig, expose: Expose | None = None) -> Application:
    """Return the hosts of one drafter, to be bound into a Serve application.

    Args:
        name: The drafter's name; the deployment's is ``drafter_<name>``.
        config: The drafter. Its ``placement`` must be ``worker``.
        expose: Shows their metrics; None to show none.

    Raises:
        DrafterConfigError: If its method or a parameter is unknown.
    """
    check_config(config)
    deployment = serve.deployment(name=deployment_name(name), **host_options(config))
    return deployment(DrafterHostDeployment).bind(name, config, expose)


def host_options(config: DrafterConfig) -> dict[str, Any]:
    """Return the options of a drafter's Serve deployment: where hosts run, and how many."""
    bundles: list[dict[str, float]] = [
        {"CPU": config.host_num_cpus},
        {"CPU": config.num_cpus, **({"GPU": config.num_gpus} if config.num_gpus else {})},
    ]
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": config.host_num_cpus},
        "placement_group_bundles": bundles,
        "placement_group_strategy": "STRICT_PACK",
        "max_ongoing_requests": MAX_ONGOING_REQUESTS,
        "health_check_period_s": max(1.0, config.ping_period_s),
    }
    if config.label_selector:
        options["placement_group_bundle_label_selector"] = [config.label_selector] * len(bundles)
    if config.autoscaling is None:
        return {**options, "num_replicas": config.num_replicas}
    return {**options, "autoscaling_config": _autoscaling(config.autoscaling)}


def _autoscaling(config: DrafterAutoscaling) -> AutoscalingConfig:
    policy = AutoscalingPolicy(  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        policy_function=f"{LoadPolicy.__module__}:{LoadPolicy.__name__}",
        policy_kwargs={
            "target_load": config.target_load,
            "target_queue_ms": config.target_queue_ms,
            "min_useful_share": config.min_useful_share,
        },
    )
    return AutoscalingConfig(
        min_replicas=config.min_replicas,
        # One at first in any case: without having seen it nobody can want it.
        initial_replicas=max(1, config.min_replicas),
        max_replicas=config.max_replicas,
        look_back_period_s=config.look_back_s,
        upscale_delay_s=config.upscale_delay_s,
        downscale_delay_s=config.downscale_delay_s,
        policy=policy,
    )


def deployment_name(name: str) -> str:
    """Return the name of the Serve deployment that hosts the drafter ``name``."""
    return f"drafter_{name}"
