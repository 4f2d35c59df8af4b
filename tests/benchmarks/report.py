"""What every benchmark says of the machine it ran on, and how it writes its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from cluster.traces.machine import machine

ROOT = Path(__file__).resolve().parents[2]
NO_GOALS: Mapping[str, float] = {}


def publish(
    name: str,
    about: str,
    figures: Mapping[str, float],
    at_least: Mapping[str, float] = NO_GOALS,
    at_most: Mapping[str, float] = NO_GOALS,
    is_shown: Callable[[str], bool] = lambda figure: True,
) -> None:
    """Write flat figures to ``.bench/NAME.json`` and print them, each beside its goal.

    Args:
        name: The benchmark.
        about: What was measured, in a few words.
        figures: By name.
        at_least: Goals that figures should reach.
        at_most: Goals that figures should not exceed.
        is_shown: Whether to print a figure; all are written.
    """
    path = ROOT / ".bench" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(dict(figures), indent=2) + "\n")
    print(f"\n{machine()}; {about}")
    for figure, value in figures.items():
        if is_shown(figure):
            goal = _goal(value, at_least.get(figure), at_most.get(figure))
            print(f"  {figure:44s} {value:8.3f}  {goal}")
    print(f"written to {path.relative_to(ROOT)}")


def _goal(value: float, at_least: float | None, at_most: float | None) -> str:
    """Return a figure's goal and whether it is met; empty for figures without one."""
    if at_least is not None:
        return f"at least {at_least:g}: {'met' if value >= at_least else 'MISSED'}"
    if at_most is not None:
        return f"at most {at_most:g}: {'met' if value <= at_most else 'MISSED'}"
    return ""
