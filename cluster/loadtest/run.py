"""Run a load test against a system that answers: send what was drawn, when it is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import httpx

from cluster.errors import NotReadyError
from cluster.loadtest.arrivals import Arrival
from cluster.loadtest.client import LoadClient
from cluster.loadtest.records import LoadResult, RequestRecord
from cluster.loadtest.watch import Watcher

Note = Callable[[str], None]
_NOTE_PERIOD_S = 1.0


async def run_load(
    url: str,
    arrivals: Sequence[Arrival],
    *,
    api_key: str | None = None,
    timeout_s: float = 180.0,
    settle_s: float = 0.0,
    note: Note = lambda text: None,
) -> LoadResult:
    """Send all requests when they are due, whatever became of those before, and wait for the last.

    Args:
        url: The system, without ``/v1``.
        arrivals: What to send, oldest first.
        api_key: Key that the system wants, or None.
        timeout_s: After how long without an end a request has failed.
        settle_s: How long to watch the system after the last reply.
        note: Told how far it is.

    Raises:
        NotReadyError: If the system does not say which model it has.
    """
    model = await model_name(url, api_key)
    started = time.monotonic()

    def clock() -> float:
        return time.monotonic() - started

    client = LoadClient(url, model, api_key, timeout_s, clock)
    watcher = Watcher(url, api_key, clock)
    watching = asyncio.ensure_future(watcher.run())
    try:
        records = await _send_all(client, arrivals, clock, note)
        note(f"all {len(records)} replies have ended")
        await asyncio.sleep(settle_s)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await watcher.look()
        await client.close()
        await watcher.close()
    return LoadResult(records, watcher.samples, clock())


async def model_name(url: str, api_key: str | None) -> str:
    """Return the name of the model that a system serves.

    Raises:
        NotReadyError: If it does not say.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(headers=headers, timeout=10.0, trust_env=False) as http:
            answer = await http.get(f"{url}/v1/models")
            answer.raise_for_status()
            return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotReadyError(f"no system answers at {url}: {reason}") from error


async def _send_all(
    client: LoadClient, arrivals: Sequence[Arrival], clock: Callable[[], float], note: Note
) -> list[RequestRecord]:
    tasks: list[asyncio.Task[RequestRecord]] = []
    try:
        for arrival in arrivals:
            await asyncio.sleep(max(0.0, arrival.at_s - clock()))
            tasks.append(asyncio.create_task(client.send(arrival)))
            note(_progress(arrival.phase, tasks, len(arrivals)))
        while tasks and (await asyncio.wait(tasks, timeout=_NOTE_PERIOD_S))[1]:
            note(_progress("waiting for the last", tasks, len(arrivals)))
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()


def _progress(where: str, tasks: Sequence[asyncio.Task[RequestRecord]], total: int) -> str:
    ended = [task.result() for task in tasks if task.done()]
    num_failed = sum(not record.is_ok for record in ended)
    return f"{where}: {len(tasks)} of {total} sent, {len(ended)} ended, {num_failed} failed"
