"""Who gets a core first where servers and an engine share them.

A thread that waited and goes on, as servers' threads do for every token, takes a core from one that
computes; all other threads of its team then wait for it. On Linux a thread may be told not to
(``SCHED_BATCH``); its share of the cores stays what it was. Elsewhere, and where a sandbox forbids
it, nothing happens.
"""

from __future__ import annotations

import os
from contextlib import suppress


def give_way() -> None:
    """Have the calling thread, and all that it starts from now on, give way."""
    _set_policy("SCHED_BATCH")


def take_precedence() -> None:
    """Have the calling thread, and all that it starts from now on, not give way."""
    _set_policy("SCHED_OTHER")


def _set_policy(name: str) -> None:
    policy: int | None = getattr(os, name, None)
    if policy is not None:
        with suppress(OSError):
            os.sched_setscheduler(0, policy, os.sched_param(0))
