"""Watch the drafters' hosts in Ray Serve, so that workers which come and go are known by itself.

The only way workers are found: each host names its worker when asked, and Serve knows the hosts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ray.exceptions import ActorDiedError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from drafters.members import Member, MemberTable, Poll

__all__ = ["Member", "watch"]

logger = logging.getLogger(__name__)

WAKE_S = 60.0
"""How long a call to a drafter without workers waits, which has Serve start one."""
WAKE_RETRY_S = 10.0
"""Pause after such a call has failed."""
MAX_BACKOFF = 4
"""A drafter whose hosts do not answer is asked after up to this many periods."""


async def watch(
    handles: Mapping[str, DeploymentHandle[Any]],
    on_change: Callable[[tuple[Member, ...]], None],
    period_s: float = 1.0,
    wants_worker: Callable[[str], bool] = lambda name: False,
) -> None:
    """Ask all hosts of all drafters every ``period_s`` and report every change, until cancelled.

    A host that fails does not hide the others, except that one which hangs without an answer
    delays news (not members already known) until Serve has replaced it. Failures are logged and
    the drafter is asked less often, never raised.

    Args:
        handles: Serve deployments of the hosts, by drafter name.
        on_change: Called on the event loop with all members, first when the first are known.
        period_s: Seconds between two rounds, and the longest that one waits for answers.
        wants_worker: Asked every round of a drafter without hosts whether it should have one again.
    """
    table = MemberTable()
    await asyncio.gather(
        *(
            _watch_one(name, handle, table, on_change, period_s, partial(wants_worker, name))
            for name, handle in handles.items()
        )
    )


async def _watch_one(
    name: str,
    handle: DeploymentHandle[Any],
    table: MemberTable,
    on_change: Callable[[tuple[Member, ...]], None],
    period_s: float,
    wants_worker: Callable[[], bool],
) -> None:
    num_failures = 0
    waking: asyncio.Task[None] | None = None
    try:
        while True:
            poll = await _ask(name, handle, period_s)
            num_failures = 0 if poll.num_silent == 0 else num_failures + 1
            if table.update(name, poll):
                logger.info("drafter %s has %d worker(s)", name, table.counts()[name])
                _report(on_change, table.members())
            is_waking = waking is not None and not waking.done()
            if wants_worker() and not is_waking and not poll.members:
                waking = asyncio.create_task(_wake(name, handle))
            await asyncio.sleep(period_s * min(MAX_BACKOFF, 1 << num_failures))
    finally:
        if waking is not None:
            waking.cancel()


async def _ask(name: str, handle: DeploymentHandle[Any], timeout_s: float) -> Poll:
    try:
        response = handle.broadcast("member")
        answers = await response.results_async(timeout_s=timeout_s, return_exceptions=True)
    except DeploymentUnavailableError:
        return Poll(())
    except Exception as error:
        logger.warning("hosts of drafter %s do not answer: %s", name, error or type(error).__name__)
        return Poll((), num_silent=1)
    members = [answer for answer in answers if isinstance(answer, Member)]
    num_silent = sum(
        isinstance(answer, BaseException) and not isinstance(answer, ActorDiedError)
        for answer in answers
    )
    return Poll(members, num_silent)


async def _wake(name: str, handle: DeploymentHandle[Any]) -> None:
    """Call a drafter without hosts; Serve starts one for the sake of the call that waits."""
    logger.info("drafter %s has no workers and is wanted", name)
    call = handle.member.remote()
    try:
        async with asyncio.timeout(WAKE_S):
            await call
    except Exception as error:
        logger.warning("drafter %s was not started: %s", name, error or type(error).__name__)
        await asyncio.sleep(WAKE_RETRY_S)
    finally:
        call.cancel()  # type: ignore[no-untyped-call]  # Ray leaves it untyped


def _report(on_change: Callable[[tuple[Member, ...]], None], members: tuple[Member, ...]) -> None:
    try:
        on_change(members)
    except Exception:
        logger.exception("could not pass on the members of the drafters")
