"""Look at a running system once a second while a load test goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from cluster.loadtest.records import Sample

PERIOD_S = 1.0
_TIMEOUT_S = 5.0


class Watcher:
    """Samples ``/status``. A system that does not answer is a sample with a problem, no error.

    Args:
        url: The system, without ``/v1``.
        api_key: Key that it wants, or None.
        clock: Seconds from the start of the load test.
    """

    def __init__(self, url: str, api_key: str | None, clock: Callable[[], float]) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False
        )
        self._clock = clock
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            started = self._clock()
            await self.look()
            await asyncio.sleep(max(0.0, PERIOD_S - (self._clock() - started)))

    async def look(self) -> None:
        """Take one sample."""
        at_s = self._clock()
        try:
            answer = await self._http.get("/status")
            answer.raise_for_status()
            self.samples.append(sample_of(answer.json(), at_s))
        except (httpx.HTTPError, ValueError) as error:
            self.samples.append(Sample(at_s, problem=str(error) or type(error).__name__))

    async def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(httpx.HTTPError):
            await self._http.aclose()


def sample_of(status: Mapping[str, Any], at_s: float) -> Sample:
    """Return what an answer of ``/status`` says."""
    verifiers = [
        entry["report"]
        for entry in status.get("verifiers") or ()
        if not entry.get("is_away") and entry.get("report")
    ]
    drafters = {
        name: sum(
            not entry.get("is_away") and bool((entry.get("report") or {}).get("up", True))
            for entry in entries
        )
        for name, entries in (status.get("drafters") or {}).items()
    }
    return Sample(
        at_s,
        len(verifiers),
        drafters,
        sum(int(report.get("num_waiting") or 0) for report in verifiers),
        sum(int(report.get("num_running") or 0) for report in verifiers),
    )
