"""What an error of a Serve call means for the request: whose fault, and whether to try again.

The only file of the Ingress, with ``deployment``, that knows Ray's errors.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto

from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    PendingCallsLimitExceeded,
    RayActorError,
    RayTaskError,
    TaskCancelledError,
    WorkerCrashedError,
)
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
)

from replicas.errors import EngineStoppedError, QueueFullError, RequestError


class Fault(Enum):
    """What to do about a failed call."""

    REQUEST = auto()
    """The client's to mend."""
    BUSY = auto()
    """Too many requests are waiting."""
    LOST = auto()
    """The Verifier is gone or going; another one can go on."""
    UNAVAILABLE = auto()
    """There is none, and none will come by itself."""
    INTERNAL = auto()
    """Ours."""


_LOST = (
    EngineStoppedError,
    RayActorError,
    WorkerCrashedError,
    NodeDiedError,
    ObjectLostError,
    TaskCancelledError,
    asyncio.CancelledError,
)
_BUSY = (QueueFullError, BackPressureError, PendingCallsLimitExceeded)


def classify(error: BaseException) -> Fault:
    """Return what a failed call means.

    Ray wraps what a replica raised in an object that is both a ``RayTaskError`` and of the raised
    class, or only the former where that class cannot be subclassed; the cause is looked at too. A
    cancelled call counts as lost: whoever cancels on purpose no longer asks.
    """
    for one in (error, getattr(error, "cause", None)):
        if isinstance(one, RequestError):
            return Fault.REQUEST
        if isinstance(one, _BUSY):
            return Fault.BUSY
        if isinstance(one, DeploymentUnavailableError):
            return Fault.UNAVAILABLE
        if isinstance(one, _LOST):
            return Fault.LOST
    if isinstance(error, RayServeException) and not isinstance(error, RayTaskError):
        return Fault.LOST  # the handle's own: a replica or its router is no longer there
    return Fault.INTERNAL
