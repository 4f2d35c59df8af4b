"""The latest rounds of a Verifier, held in memory so that requests can be explained. No I/O."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable

from policy_service.decision_log.records import RoundRecord


class RecentRounds:
    """Holds at most so many rounds; the first of the oldest request go first.

    May be used from any thread.
    """

    def __init__(self, max_rounds: int) -> None:
        self._max_rounds = max_rounds
        self._by_request: OrderedDict[str, deque[RoundRecord]] = OrderedDict()
        self._num_rounds = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._num_rounds

    def add(self, records: Iterable[RoundRecord]) -> None:
        """Take rounds in, those of a request in their order."""
        with self._lock:
            for record in records:
                kept = self._by_request.setdefault(record.request_id, deque())
                kept.append(record)
                self._num_rounds += 1
            while self._num_rounds > self._max_rounds:
                self._drop_oldest()

    def of(self, request_id: str) -> list[RoundRecord]:
        """Return what is held of a request, in order."""
        with self._lock:
            return list(self._by_request.get(request_id, ()))

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._by_request))
        self._by_request[oldest].popleft()
        self._num_rounds -= 1
        if not self._by_request[oldest]:
            del self._by_request[oldest]
