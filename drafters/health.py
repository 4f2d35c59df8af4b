"""When a worker that fails is left alone, and when it is tried again.

Pure: state and time are passed in. A worker that fails several times in a row is ejected for a
time that doubles with each further ejection. After it, a probe (an empty call that nobody waits
for) readmits it on probation: the next failure ejects it again at once, a draft clears everything.
So nothing is given up for ever, and no step pays for trying.
"""

from __future__ import annotations

from collections import Counter

EJECT_AFTER = 3
"""Failures in a row that eject a worker which is late or answers badly."""
FIRST_BACKOFF_S = 0.5
"""How long a worker is ejected at first."""
MAX_BACKOFF_S = 30.0
"""How long at most."""


class WorkerHealth:
    """One worker's failures.

    Attributes:
        reasons: How often it failed, by reason.
        is_ejected: Whether it is not to be called.
        away_since: When the present run of failures began; None if the last call went well.
    """

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.is_ejected = False
        self.away_since: float | None = None
        self._num_failures = 0
        self._backoff_s = 0.0
        self._probe_at = 0.0

    def record_success(self) -> None:
        """Note that a call went well; only ``reasons`` remembers the failures before it."""
        self.is_ejected = False
        self.away_since = None
        self._num_failures = 0
        self._backoff_s = 0.0

    def record_failure(self, reason: str, now: float) -> None:
        """Note that a call or a probe failed. A worker that is ``away`` is ejected at once."""
        self.reasons[reason] += 1
        self._num_failures += 1
        if self.away_since is None:
            self.away_since = now
        if reason == "away" or self._num_failures >= EJECT_AFTER:
            self._backoff_s = min(MAX_BACKOFF_S, max(FIRST_BACKOFF_S, 2 * self._backoff_s))
            self._probe_at = now + self._backoff_s
            self.is_ejected = True

    def take_probe(self, now: float) -> bool:
        """Return whether to probe now; if so, not again before as long a time has passed."""
        if not self.is_ejected or now < self._probe_at:
            return False
        self._probe_at = now + self._backoff_s
        return True

    def record_probe_answered(self) -> None:
        """Note that a probe was answered: readmitted on probation."""
        self.is_ejected = False
        self._num_failures = EJECT_AFTER - 1
