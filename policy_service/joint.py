"""The sequences of a step that are planned together, on their way to whoever plans them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from policy_service.abilities import BatchPlanner
from policy_service.api import NONE, Arm, Decision, TrimItem
from policy_service.sequence_plan import SequencePlan
from policy_service.step_times import StepLoad

UNDECIDED = Decision(NONE, "", "not decided yet")

Asked = tuple[int, SequencePlan, int, tuple[Arm, ...]]
"""Where a sequence stands in the step, its plan, most tokens to draft, and its arms."""
Drafted = tuple[int, SequencePlan, TrimItem]
"""Where a draft stands in the step, its sequence's plan, and the draft."""


def ask_jointly(
    asked: Mapping[BatchPlanner, Sequence[Asked]],
    versions: Mapping[str, str],
    load: StepLoad,
    rng: np.random.Generator,
) -> Iterator[tuple[int, Decision]]:
    """Yield the place and the decision of every sequence."""
    for batch, members in asked.items():
        batch.set_drafters(versions)
        places, plans, rooms, arms = zip(*members, strict=True)
        choices = batch.ask([plan.seat for plan in plans], rooms, arms, load, rng)
        name = plans[0].learner.name
        for place, plan, (arm, reason, propensity, estimates) in zip(
            places, plans, choices, strict=True
        ):
            plan.is_joint = True
            plan.drafter_version = versions.get(arm.drafter, "")
            yield (
                place,
                Decision(arm, name, reason, propensity, plan.snapshot_version, estimates),
            )


def trim_jointly(
    drafted: Mapping[BatchPlanner, Sequence[Drafted]], load: StepLoad, rng: np.random.Generator
) -> Iterator[tuple[int, int]]:
    """Yield the place of every draft and how many of its nodes to verify."""
    for batch, members in drafted.items():
        places, plans, items = zip(*members, strict=True)
        sizes = batch.trim([plan.seat for plan in plans], items, load, rng)
        yield from zip(places, sizes, strict=True)
