"""Turn what ``/status`` answers into rows for people: who is up, since when not, how often missed.

Pure; reads the answer leniently, for it may come from another version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One part of the system, as one line.

    Attributes:
        part: Which kind of part.
        name: Which one of them.
        is_up: Whether it answered; None if nobody could say.
        away_s: Seconds since when it is away, if it is.
        num_without: How often it was done without.
        detail: More, in words.
    """

    part: str
    name: str
    is_up: bool | None
    away_s: float | None = None
    num_without: int = 0
    detail: str = ""


def rows(status: Mapping[str, Any], now: float) -> list[Row]:
    """Return a row for each part that a status names.

    Args:
        status: What ``/status`` answered.
        now: Seconds since 1970.
    """
    return [
        *(_entry("verifier", entry, now) for entry in _list(status.get("verifiers"))),
        *_drafter_rows(status, now),
        *_policy_rows(status, now),
    ]


def is_all_up(found: list[Row]) -> bool:
    """Whether nothing is away."""
    return all(row.is_up for row in found)


def _drafter_rows(status: Mapping[str, Any], now: float) -> Iterator[Row]:
    """One row a drafter host; what Verifiers did without a drafter is added to its first."""
    views = _verifier_views(status, "drafters")
    hosts = _dict(status.get("drafters"))
    for name in sorted({*hosts, *(str(view.get("name")) for view in views)}):
        seen = [view for view in views if view.get("name") == name]
        num_without = sum(int(view.get("done_without") or 0) for view in seen)
        away = [float(view["away_since"]) for view in seen if view.get("away_since")]
        detail = "; ".join(part for part in (_reasons(seen), _cost(seen)) if part)
        if seen and all(view.get("asleep") for view in seen):
            yield Row(f"drafter {name}", "", True, None, num_without, "no worker is wanted")
            continue
        entries = _list(hosts.get(name)) or [{"name": "in the Verifiers", "report": {"up": True}}]
        for entry in entries:
            row = _entry(f"drafter {name}", entry, now)
            is_up = row.is_up and not away and _dict(entry.get("report")).get("up", True)
            away_s = row.away_s if row.away_s is not None else _age(min(away, default=None), now)
            yield Row(row.part, row.name, bool(is_up), away_s, num_without, detail)
            num_without, detail = 0, ""


def _policy_rows(status: Mapping[str, Any], now: float) -> Iterator[Row]:
    views = _verifier_views(status, "policy")
    entry = _dict(status.get("policy"))
    row = _entry("policy", entry, now)
    num_without = sum(int(view.get("missed") or 0) for view in views)
    yield Row("policy", "", row.is_up, row.away_s, num_without, row.detail)
    report = _dict(entry.get("report"))
    is_up = report.get("store_up") if row.is_up else None
    yield Row(
        "redis",
        "",
        is_up,
        _age(report.get("store_away_since"), now) if is_up is False else None,
        int(report.get("store_failures") or 0),
        str(report.get("store_reason") or "") if is_up is False else "",
    )


def _entry(part: str, entry: Mapping[str, Any], now: float) -> Row:
    is_up = not entry.get("is_away") and entry.get("report") is not None
    away_s = _age(entry.get("away_since"), now)
    name = str(entry.get("name") or "")
    return Row(part, name, is_up, away_s, int(entry.get("num_misses") or 0))


def _verifier_views(status: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return what every Verifier that answers says of drafters, or of the policy."""
    reports = [_dict(entry.get("report")) for entry in _list(status.get("verifiers"))]
    views: list[Mapping[str, Any]] = []
    for report in reports:
        found = report.get(key)
        views += _list(found) if isinstance(found, list) else [_dict(found)] if found else []
    return views


def _reasons(views: list[Mapping[str, Any]]) -> str:
    total: dict[str, int] = {}
    for view in views:
        for reason, count in _dict(view.get("by_reason")).items():
            total[reason] = total.get(reason, 0) + int(count)
    return ", ".join(f"{reason} {count}" for reason, count in sorted(total.items()) if count)


def _cost(views: list[Mapping[str, Any]]) -> str:
    """Return what drafts gave and took on average, over all Verifiers; empty if there were none."""
    drafts = sum(int(view.get("drafts") or 0) for view in views)
    costs = [_dict(view.get("cost")) for view in views]
    calls = sum(int(cost.get("calls") or 0) for cost in costs)
    if not drafts or not calls:
        return ""
    accepted = sum(int(n) for cost in costs for n in cost.get("accepted_by_depth") or ())
    times = {
        name: sum(float(_dict(cost.get(name)).get("sum_ms") or 0.0) for cost in costs) / calls
        for name in ("draft_ms", "round_trip_ms")
    }
    return (
        f"{accepted / drafts:.2f} accepted a draft, {times['draft_ms']:.2g} ms of "
        f"{times['round_trip_ms']:.2g} ms a call drafting"
    )


def _age(since: Any, now: float) -> float | None:
    return max(0.0, now - float(since)) if isinstance(since, int | float) else None


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
