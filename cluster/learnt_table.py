"""Turn what ``/policy`` answers into rows for people. Pure; reads the answer leniently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Learnt = Mapping[str, Any]
"""What ``/policy`` answered."""

HEADINGS = ("context", "arm", "pulls", "mean reward", "accepted", "failed", "last counted")


def rows(learnt: Learnt, part: str = "") -> Iterator[tuple[str, ...]]:
    """Yield a row for each context and arm, wide contexts first, most pulls first within one.

    Args:
        learnt: The answer.
        part: Only contexts whose name contains this.
    """
    contexts = _dict(learnt.get("contexts"))
    for context in sorted(contexts, key=lambda name: (name.count("|"), name)):
        if part not in context:
            continue
        arms = _dict(contexts[context])
        for arm in sorted(arms, key=lambda name: (-_number(arms[name], "pulls"), name)):
            counts = _dict(arms[arm])
            drafted = _number(counts, "drafted")
            yield (
                context,
                arm,
                f"{_number(counts, 'pulls'):.0f}",
                _mean(counts.get("mean_reward")),
                f"{_number(counts, 'accepted') / drafted:.0%}" if drafted else "-",
                f"{_number(counts, 'failed'):.0f}",
                _ago(_number(counts, "age_s")),
            )


def num_cells(learnt: Learnt) -> int:
    """Return how many counters there are that are no arm's."""
    return sum(len(_dict(cells)) for cells in _dict(learnt.get("cells")).values())


def _ago(age_s: float) -> str:
    if age_s < 60:
        return "now"
    return f"{age_s / 60:.0f} min ago" if age_s < 5400 else f"{age_s / 3600:.0f} h ago"


def _mean(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _number(counts: Any, name: str) -> float:
    value = _dict(counts).get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
