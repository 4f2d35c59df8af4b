"""How long to wait for a worker, from how long it lately took. Pure.

The estimate is that of TCP's retransmission timer (Jacobson 1988; RFC 6298): a running mean of the
round trips plus four times their running mean deviation. Calls that open sessions, whose contexts
travel and may have to be computed, are estimated apart from those that only extend them.
"""

from __future__ import annotations

from collections.abc import Collection

from drafters.members import MemberKey

MEAN_GAIN = 1 / 8
"""RFC 6298, alpha."""
DEVIATION_GAIN = 1 / 4
"""RFC 6298, beta."""
DEVIATIONS = 4.0
"""RFC 6298, K."""


class RoundTrips:
    """Running mean and mean deviation of round trips, in milliseconds."""

    __slots__ = ("_deviation_ms", "_mean_ms")

    def __init__(self) -> None:
        self._mean_ms: float | None = None
        self._deviation_ms = 0.0

    def observe(self, ms: float) -> None:
        """Take in one round trip."""
        if self._mean_ms is None:
            self._mean_ms, self._deviation_ms = ms, ms / 2.0
            return
        error = ms - self._mean_ms
        self._deviation_ms += DEVIATION_GAIN * (abs(error) - self._deviation_ms)
        self._mean_ms += MEAN_GAIN * error

    def bound_ms(self) -> float | None:
        """Return what nearly all round trips stay below; None if there were none."""
        if self._mean_ms is None:
            return None
        return self._mean_ms + DEVIATIONS * self._deviation_ms


class Deadlines:
    """The round trips of all workers, and the deadlines that follow from them."""

    def __init__(self) -> None:
        self._trips: dict[tuple[MemberKey, bool], RoundTrips] = {}

    def observe(self, key: MemberKey, ms: float, *, opens: bool) -> None:
        """Take in how long a call took, also of an answer that came too late to be used.

        Args:
            key: The worker.
            ms: Milliseconds from sending the call to its answer.
            opens: Whether it carried a context.
        """
        self._trips.setdefault((key, opens), RoundTrips()).observe(ms)

    def deadline_ms(self, key: MemberKey, least: float, most: float, *, opens: bool) -> float:
        """Return how long to wait for an answer, between ``least`` and ``most`` milliseconds.

        It is ``most`` as long as nothing is known of the worker.
        """
        trips = self._trips.get((key, opens))
        bound = None if trips is None else trips.bound_ms()
        return most if bound is None else min(most, max(least, bound))

    def forget_all_but(self, keys: Collection[MemberKey]) -> None:
        """Forget workers that are no longer members."""
        for entry in [entry for entry in self._trips if entry[0] not in keys]:
            del self._trips[entry]
