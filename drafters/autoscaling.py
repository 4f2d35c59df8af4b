"""How many hosts a drafter needs, from how busy their workers are. Pure.

Calls go to the workers directly, so Serve sees none of them: each host reports its worker's load,
and the number of hosts follows from that.

Serve pickles this module by value into its controller, which need not have our packages: it
imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

LOAD = "load"
"""Name of the metric that hosts report."""


_ROUNDING = 1e-9


class LoadContext(Protocol):
    """What is used of ``ray.serve.config.AutoscalingContext``."""

    @property
    def target_num_replicas(self) -> int:
        """Hosts there should be now."""

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """For each metric its mean over the last while, by host."""


class LoadPolicy:
    """Has as many hosts as share out the load, so that each has ``target_load``.

    Serve keeps the number within its bounds and waits out its delays.

    Args:
        target_load: The load that a host should have.
    """

    def __init__(self, target_load: float) -> None:
        self._target_load = target_load

    def __call__(self, context: LoadContext) -> tuple[float, dict[str, Any]]:
        """Return how many hosts there should be, and no state.

        Hosts that have not reported yet are taken to be as busy as the others.
        """
        loads = (context.aggregated_metrics or {}).get(LOAD) or {}
        num_hosts = context.target_num_replicas
        if not loads:
            return float(num_hosts), {}
        mean = sum(loads.values()) / len(loads)
        # Serve rounds up, and must not do so for the last bit of a quotient.
        return max(0.0, mean * num_hosts / self._target_load - _ROUNDING), {}


class LoadMeter:
    """A worker's load since it was last asked for.

    Args:
        max_sessions: Most sessions that the worker takes on.
    """

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._last: tuple[float, Mapping[str, Any]] | None = None

    def load(self, status: Mapping[str, Any], now: float) -> float | None:
        """Return the load: 1 is all that the worker can do.

        It is the share of the time it spent in calls or the share of its sessions that are open,
        whichever is larger, and at least 1 if it had to refuse something. None if it said nothing:
        a worker too busy to answer is not an idle one.

        Args:
            status: What the worker said of itself; empty if it said nothing.
            now: Seconds from any start.
        """
        if not status:
            return None
        last, self._last = self._last, (now, status)
        sessions = float(status.get("num_sessions", 0)) / self._max_sessions
        if last is None or last[1].get("incarnation") != status.get("incarnation"):
            return sessions
        elapsed_ms = (now - last[0]) * 1e3
        busy = _grown(last[1], status, "busy_ms") / elapsed_ms if elapsed_ms > 0 else 0.0
        refused = _grown(last[1], status, "num_busy") + _grown(last[1], status, "num_refused_calls")
        return max(sessions, min(1.0, busy), 1.0 if refused else 0.0)


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    return float(after.get(name, 0)) - float(before.get(name, 0))
