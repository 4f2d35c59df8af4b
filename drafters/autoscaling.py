"""How many hosts a drafter needs: from how busy its workers are, and whether they are of use. Pure.

Calls go to the workers directly, so Serve sees none of them: each host reports its worker's load,
and the number of hosts follows from that.

Serve pickles this module by value into its controller, which need not have our packages: it
imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

LOAD = "load"
"""Metric: the share of what a worker can do that it is asked to."""
QUEUE_MS = "queue_ms"
"""Metric: how long a call waits for others, on average."""
USEFUL_SHARE = "useful_share"
"""Metric: share of drafts whose first token came."""

MOST_FOR_QUEUE = 2.0
"""However long calls wait, a host is worth no more than so many for it: waits grow without bound
as a worker gets full, the work does not."""
MIN_JUDGED = 50
"""Drafts after which a drafter may be called of no use."""
MAX_JUDGED = 1000
"""When more have been judged, older ones count half."""

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

    Where calls wait longer than ``target_queue_ms`` there are more. A drafter of which too few
    drafts are of use is not worth more workers, and none at all if there may be none: its load is
    then taken to be nothing. Serve keeps the number within its bounds and waits out its delays.

    Args:
        target_load: The load that a host should have.
        target_queue_ms: How long calls may wait.
        min_useful_share: Share of drafts that must be of use.
    """

    def __init__(self, target_load: float, target_queue_ms: float, min_useful_share: float) -> None:
        self._target_load = target_load
        self._target_queue_ms = target_queue_ms
        self._min_useful_share = min_useful_share

    def __call__(self, context: LoadContext) -> tuple[float, dict[str, Any]]:
        """Return how many hosts there should be, and no state.

        Hosts that have not reported yet are taken to have nothing to do: those that start would
        otherwise call for more, before they could take anything over.
        """
        metrics = context.aggregated_metrics or {}
        loads = metrics.get(LOAD) or {}
        if not loads:
            return float(context.target_num_replicas), {}
        shares = (metrics.get(USEFUL_SHARE) or {}).values()
        if shares and sum(shares) / len(shares) < self._min_useful_share:
            return 0.0, {}
        queues = metrics.get(QUEUE_MS) or {}
        wanted = sum(self._worth(load, queues.get(host, 0.0)) for host, load in loads.items())
        # Serve rounds up, and must not do so for the last bit of a quotient.
        return max(0.0, wanted - _ROUNDING), {}

    def _worth(self, load: float, queue_ms: float) -> float:
        """Return how many hosts one host's load is worth."""
        by_queue = min(MOST_FOR_QUEUE, queue_ms / self._target_queue_ms)
        return max(load / self._target_load, by_queue)


class LoadMeter:
    """What to report of a worker.

    Args:
        max_sessions: Most sessions that the worker takes on.
    """

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._last: tuple[float, Mapping[str, Any]] | None = None
        self._num_judged = 0.0
        self._num_useful = 0.0

    def measure(self, status: Mapping[str, Any], now: float) -> dict[str, float]:
        """Return the metrics since the last call; none if the worker said nothing.

        A worker too busy to answer is not an idle one. The load is the share of the time it spent
        in calls or the share of its sessions that are open, whichever is larger, and at least 1 if
        it had to refuse something. What too few drafts say of its use is left out.

        Args:
            status: What the worker said of itself; empty if it said nothing.
            now: Seconds from any start.
        """
        if not status:
            return {}
        last, self._last = self._last, (now, status)
        sessions = float(status.get("num_sessions", 0)) / self._max_sessions
        if last is None or last[1].get("incarnation") != status.get("incarnation"):
            return {LOAD: sessions}
        elapsed_ms = (now - last[0]) * 1e3
        busy = _grown(last[1], status, "busy_ms") / elapsed_ms if elapsed_ms > 0 else 0.0
        refused = _grown(last[1], status, "num_busy") + _grown(last[1], status, "num_refused_calls")
        num_calls = _grown(last[1], status, "num_calls")
        return {
            LOAD: max(sessions, min(1.0, busy), 1.0 if refused else 0.0),
            QUEUE_MS: _grown(last[1], status, "queue_ms") / num_calls if num_calls else 0.0,
            **self._use(last[1], status),
        }

    def _use(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
        self._num_judged += _grown(before, after, "num_judged")
        self._num_useful += _grown(before, after, "num_useful")
        if self._num_judged < MIN_JUDGED:
            return {}
        share = self._num_useful / self._num_judged
        if self._num_judged > MAX_JUDGED:
            self._num_judged, self._num_useful = self._num_judged / 2, self._num_useful / 2
        return {USEFUL_SHARE: share}


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    return float(after.get(name, 0)) - float(before.get(name, 0))
