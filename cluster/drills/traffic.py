"""Users who ask a system all the time while it is harmed, and know what it must answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from cluster.drills.api import Figures
from cluster.errors import DrillError
from cluster.loadtest.arrivals import Arrival
from cluster.loadtest.client import LoadClient, empty_record
from cluster.loadtest.records import RequestRecord
from cluster.loadtest.run import model_name
from cluster.loadtest.scenario import RequestSettings
from cluster.workloads import Prompt, read_prompts

MID_STREAM_TIMEOUT_S = 60.0
_TIMEOUT_S = 150.0
_POLL_S = 0.01


def questions(count: int, max_tokens: int) -> list[Arrival]:
    """Return questions, every other one sampled, each with a seed of its own."""
    prompts: list[Prompt] = read_prompts()
    return [
        Arrival(
            index=index,
            at_s=0.0,
            phase="drill",
            workload="drill",
            prompt=prompts[index % len(prompts)],
            seed=index,
            settings=RequestSettings(
                max_tokens=max_tokens, temperature=0.8 * (index % 2), ignore_eos=True
            ),
        )
        for index in range(count)
    ]


class Traffic:
    """A number of users, each with one request at a time. A context manager.

    Its end lets replies under way end; what they were can be asked afterwards.

    Args:
        url: The system, without ``/v1``.
        asked: Questions, taken in turn.
        users: How many ask at a time.
        expected: The right replies by index of the question; None where nobody knows.
    """

    def __init__(
        self,
        url: str,
        asked: Sequence[Arrival],
        users: int = 4,
        expected: Mapping[int, str] | None = None,
    ) -> None:
        self._url = url
        self._asked = list(asked)
        self._users = users
        self._expected = expected
        self._next = 0
        self._is_ending = False
        self._started = time.monotonic()
        self._done: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self.records: list[RequestRecord] = []

    def __enter__(self) -> Self:
        """Let them begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the replies under way end, and nobody ask again.

        Raises:
            Exception: Whatever went wrong with the users themselves.
        """
        self._is_ending = True
        self._thread.join()
        self._done.result()

    def now_s(self) -> float:
        """Return seconds since they began, the time of all records."""
        return time.monotonic() - self._started

    def under_way(self) -> list[RequestRecord]:
        """Return the requests whose replies have begun and not ended."""
        return [record for record in list(self.records) if record.tokens and not record.ended_s]

    def wait_until_mid_stream(self, count: int | None = None) -> None:
        """Wait until so many replies are under way; all users' if none is given.

        Raises:
            DrillError: If that does not come.
        """
        wanted = self._users if count is None else count
        deadline = time.monotonic() + MID_STREAM_TIMEOUT_S
        while len(self.under_way()) < wanted:
            if time.monotonic() >= deadline or self._done.done():
                raise DrillError(f"expected {wanted} replies under way, found {self.under_way()}")
            time.sleep(_POLL_S)

    def wait_for_replies(self, count: int, timeout_s: float = 240.0) -> None:
        """Wait until so many more replies have ended.

        Raises:
            DrillError: If they do not.
        """
        wanted = self.num_ended() + count
        deadline = time.monotonic() + timeout_s
        while self.num_ended() < wanted:
            if time.monotonic() >= deadline or self._done.done():
                raise DrillError(f"expected {wanted} replies, found {self.num_ended()}")
            time.sleep(_POLL_S)

    def num_ended(self) -> int:
        """Return how many requests have ended, well or not."""
        return sum(bool(record.ended_s) for record in list(self.records))

    def figures(self) -> Figures:
        """Return what became of the requests."""
        return {
            "requests sent": len(self.records),
            "failed": len(self.failed()),
            "different text": len(self.different()),
            "given to another Verifier": sum(record.attempts > 1 for record in self.records),
            "longest silence of a stream, s": round(self.longest_silence_s(), 2),
        }

    def problems(self) -> list[str]:
        """Return what users would complain about; empty if all was well."""
        found = [f"request {one.index} failed: {one.error}" for one in self.failed()[:5]]
        found += [
            f"reply {one.index} is different: {one.text[:60]!r}, expected "
            f"{(self._expected or {}).get(one.index, '')[:60]!r}"
            for one in self.different()[:5]
        ]
        return found if self.records else ["no requests were sent"]

    def failed(self) -> list[RequestRecord]:
        """Return the requests without a whole reply."""
        return [record for record in self.records if not record.is_ok]

    def different(self) -> list[RequestRecord]:
        """Return the requests whose reply is not the right one."""
        if self._expected is None:
            return []
        return [
            record
            for record in self.records
            if record.is_ok and record.ended_s and record.text != self._expected[record.index]
        ]

    def longest_silence_s(self) -> float:
        """Return the longest time in which nothing came on a stream that had begun."""
        gaps = [
            later - earlier
            for record in self.records
            for (earlier, _), (later, _) in pairwise(record.tokens)
        ]
        return max(gaps, default=0.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._ask_all())
        except BaseException as error:  # handed to whoever ends the traffic
            self._done.set_exception(error)
        else:
            self._done.set_result(None)

    async def _ask_all(self) -> None:
        model = await model_name(self._url, None)
        client = LoadClient(self._url, model, None, _TIMEOUT_S, self.now_s)
        try:
            await asyncio.gather(*(self._ask(client) for _ in range(self._users)))
        finally:
            await client.close()

    async def _ask(self, client: LoadClient) -> None:
        """Be one user."""
        while not self._is_ending:
            arrival = self._asked[self._next % len(self._asked)]
            self._next += 1
            record = replace(empty_record(arrival), planned_s=self.now_s())
            self.records.append(record)
            await client.send(arrival, record)


def ask_once(url: str, asked: Sequence[Arrival], **speculation: Any) -> dict[int, str]:
    """Ask every question once and return the replies by index.

    Raises:
        DrillError: If one fails.
    """
    settled = [
        replace(one, settings=one.settings.model_copy(update={"speculation": speculation}))
        for one in asked
    ]
    records = asyncio.run(_all(url, settled))
    failed = [record.error for record in records if not record.is_ok]
    if failed:
        raise DrillError(f"{len(failed)} of {len(records)} requests failed in calm: {failed[0]}")
    return {record.index: record.text for record in records}


async def _all(url: str, asked: Sequence[Arrival]) -> list[RequestRecord]:
    started = time.monotonic()
    model = await model_name(url, None)
    client = LoadClient(url, model, None, _TIMEOUT_S, lambda: time.monotonic() - started)
    try:
        return list(await asyncio.gather(*(client.send(arrival) for arrival in asked)))
    finally:
        await client.close()
