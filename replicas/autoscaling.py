"""How many Verifiers there should be, from the work they have and the pace they keep. Pure.

Serve sees requests, and one may be ten tokens or ten thousand: each Verifier reports the tokens it
has before it and how many a second it really yields. Where fewer drafts are accepted it yields
less, the same tokens are more work, and there are more Verifiers sooner.

Serve pickles this module by value into its controller, which need not have our packages: it
imports nothing of ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

QUEUED_TOKENS = "queued_tokens"
"""Metric: prompt tokens to compute before all requests that are here have their first token."""
BLOCKED_TOKENS = "blocked_tokens"
"""Metric: reply tokens to emit before there is room for the requests that wait."""
REPLY_TOKENS = "reply_tokens"
"""Metric: reply tokens that the requests here are expected to need still."""
PROMPT_RATE = "prompt_tokens_per_s"
"""Metric: prompt tokens computed a second, while there are any."""
GOODPUT = "reply_tokens_per_s"
"""Metric: reply tokens emitted a second, while there is work."""

MAX_GROWTH = 2
"""There are at most so many times the running Verifiers at once: those that start take over work,
and until they have it is not known how many more are needed."""


class WorkContext(Protocol):
    """What is used of ``ray.serve.config.AutoscalingContext``."""

    @property
    def current_num_replicas(self) -> int:
        """Verifiers that run."""

    @property
    def target_num_replicas(self) -> int:
        """Verifiers there should be now."""

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """For each metric its mean over the last while, by Verifier."""


class WorkPolicy:
    """Has as many Verifiers as share out the work, so that each meets both targets.

    A Verifier's work is the time it needs for it over the time it should need: to the first token
    of whoever comes now, or to the end of all replies, whichever is the larger share. Verifiers
    that have reported nothing have no work. The number wanted is the sum over Verifiers, rounded
    up; it changes only when it is off by more than ``tolerance``, at most doubles at a time, and
    Serve waits out its delays before it follows.

    This does not swing as long as a Verifier that has more to do yields at least as much a second
    as with less: then what moves to fewer Verifiers takes them no longer than was reckoned with,
    and what moves to more does not shrink below what they were reckoned for.

    Args:
        ttft_target_s: Seconds to a first token.
        reply_target_s: Seconds to the end of all replies.
        tolerance: Share by which the number wanted must be off, 0 to 1.
    """

    def __init__(self, ttft_target_s: float, reply_target_s: float, tolerance: float) -> None:
        self._ttft_target_s = ttft_target_s
        self._reply_target_s = reply_target_s
        self._tolerance = tolerance

    def __call__(self, context: WorkContext) -> tuple[float, dict[str, Any]]:
        """Return how many Verifiers there should be, and no state."""
        metrics = context.aggregated_metrics or {}
        reporting = metrics.get(GOODPUT) or {}
        if not reporting:
            return float(context.target_num_replicas), {}
        work = sum(
            self.work({name: by_replica.get(replica, 0.0) for name, by_replica in metrics.items()})
            for replica in reporting
        )
        most = MAX_GROWTH * max(1, context.current_num_replicas)
        return float(self._step(work, context.target_num_replicas, most)), {}

    def work(self, metrics: Mapping[str, float]) -> float:
        """Return one Verifier's work: 1 is all that it should have.

        Args:
            metrics: What it reported.
        """
        goodput = metrics.get(GOODPUT, 0.0)
        prompt_rate = metrics.get(PROMPT_RATE, 0.0)
        if goodput <= 0 or prompt_rate <= 0:
            return 0.0
        first_token_s = (
            metrics.get(QUEUED_TOKENS, 0.0) / prompt_rate
            + metrics.get(BLOCKED_TOKENS, 0.0) / goodput
        )
        reply_s = metrics.get(REPLY_TOKENS, 0.0) / goodput
        return max(first_token_s / self._ttft_target_s, reply_s / self._reply_target_s)

    def _step(self, work: float, num_now: int, most: int) -> int:
        """Return the next number of Verifiers, from the work in units of one."""
        if work > num_now * (1 + self._tolerance):
            return max(num_now, min(math.ceil(work), most))
        fewer = max(1, math.ceil(work / (1 - self._tolerance)))
        return min(num_now, fewer)
