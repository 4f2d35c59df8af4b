"""The drafts of one step: what is wanted and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drafters.api import Draft
from drafters.places import DraftWanted


@dataclass(frozen=True, slots=True)
class DraftResult:
    """What came of one wanted draft.

    Attributes:
        draft: The draft, checked; empty unless ``status`` is ``ok``.
        status: ``ok``; ``empty``: the drafter found nothing; ``late``: no answer within the
            deadline, or the worker still owes an earlier one; ``failed``: the drafter raised;
            ``malformed``: it proposed what cannot be; ``need_context``: the context could not be
            sent, or there was no time left for it; ``away``: no worker, or none that is not left
            alone for now; ``busy``: all workers are at their capacity.
        wait_ms: From the start of ``draft`` until this draft was there or given up.
    """

    draft: Draft
    status: str
    wait_ms: float


@dataclass(slots=True)
class Step:
    """The drafts of one step.

    Attributes:
        wanted: What is wanted.
        worth_ms: Waiting longer never pays; None if nobody knows.
        started: When it began, on the clock.
        results: What came, by index of what was wanted.
    """

    wanted: Sequence[DraftWanted]
    worth_ms: float | None
    started: float
    results: dict[int, DraftResult] = field(default_factory=dict)
