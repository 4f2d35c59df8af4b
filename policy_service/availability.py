"""Whether the other side is there: since when it is away, how often that was felt, when to try.

Used by the replica for the Policy and by the Policy for the store. It logs once when the other side
goes away and once when it is back. Time is passed in.
"""

from __future__ import annotations

import logging


class Availability:
    """Keeps account of failures and spaces out further attempts."""

    def __init__(
        self, what: str, logger: logging.Logger, first_delay_s: float, longest_delay_s: float
    ) -> None:
        """Start with the other side believed to be there.

        Args:
            what: The other side, for the log.
            logger: Where to tell of going and coming back.
            first_delay_s: Pause after the first failure; it doubles with each one in a row.
            longest_delay_s: Longest pause.
        """
        self._what = what
        self._logger = logger
        self._first_delay_s = first_delay_s
        self._longest_delay_s = longest_delay_s
        self._retry_at = float("-inf")
        self._streak = 0
        self.away_since: float | None = None
        self.num_failures = 0
        self.reason = ""

    @property
    def is_up(self) -> bool:
        """Whether the last attempt succeeded (or there was none)."""
        return self.away_since is None

    @property
    def delay_s(self) -> float:
        """Pause before the next attempt; 0 if the other side is there."""
        if self._streak == 0:
            return 0.0
        doublings = min(self._streak - 1, 30)
        return min(self._longest_delay_s, self._first_delay_s * 2.0**doublings)

    def may_try(self, now: float) -> bool:
        """Whether the pause after the last failure is over (or the clock was set back)."""
        return not self._retry_at - self._longest_delay_s <= now < self._retry_at

    def failed(self, now: float, reason: str) -> None:
        """Note a failed attempt."""
        if self.away_since is None:
            self.away_since = now
            self._logger.warning("%s is away: %s", self._what, reason)
        self._streak += 1
        self.num_failures += 1
        self.reason = reason
        self._retry_at = now + self.delay_s

    def succeeded(self, now: float) -> None:
        """Note a successful attempt."""
        if self.away_since is not None:
            away_s = now - self.away_since
            self._logger.info(
                "%s is back after %.1f s and %d failures", self._what, away_s, self._streak
            )
        self.away_since = None
        self._streak = 0
        self._retry_at = float("-inf")


def describe(error: BaseException) -> str:
    """Return one line for an error, cut to a sane length.

    >>> describe(TimeoutError())
    'TimeoutError'
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1][:300]}" if lines else type(error).__name__
