"""What the pool has learnt, for people: counts by context, arms apart from what else is counted.

Pure: time is passed in.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from policy_service.api import Arm, ArmCounts, CellKey, RewardKind
from policy_service.merge import last_epochs, totals
from policy_service.store import Pool


def dump(pool: Pool, now: float, epoch_s: int, kind: RewardKind) -> dict[str, Any]:
    """Return all counts, undecayed; those of wide contexts are sums of what is below them.

    ``contexts`` has the arms by context and ``arm@drafter version``, ``cells`` what else is counted
    (conditional acceptance by score, depth and rank) in the same way. ``age_s`` is how long ago, at
    least, the last round was played.
    """
    last = last_epochs(pool.epochs)
    arms: dict[str, dict[str, Any]] = {}
    cells: dict[str, dict[str, Any]] = {}
    for key, counts in sorted(totals(pool.epochs).items()):
        entry = _entry(counts, kind)
        entry["age_s"] = max(0.0, now - (last[key] + epoch_s))
        table = arms if is_arm(key) else cells
        table.setdefault(key.context, {})[_name(key)] = entry
    return {"generation": pool.generation, "contexts": arms, "cells": cells}


def is_arm(key: CellKey) -> bool:
    """Whether a cell counts the rounds of an arm."""
    try:
        Arm.parse(key.arm)
    except ValueError:
        return False
    return True


def _entry(counts: ArmCounts, kind: RewardKind) -> dict[str, Any]:
    mean = counts.reward(kind) / counts.pulls if counts.pulls else None
    return {**asdict(counts), "mean_reward": mean}


def _name(key: CellKey) -> str:
    return f"{key.arm}@{key.drafter_version}" if key.drafter_version else key.arm
