"""Explained rounds of a request as rows for people: each round, and what each arm came to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ROUND_HEADINGS = (
    "round",
    "at",
    "arm",
    "why",
    "chance",
    "best estimates",
    "draft",
    "tokens",
    "wait ms",
    "step ms",
    "batch",
)
ARM_HEADINGS = ("arm", "rounds", "tokens", "tokens a round", "accepted", "wait ms", "step ms")

_BEST = 3
"""Estimates shown of a round."""


def round_rows(reply: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each round of a reply, under ``ROUND_HEADINGS``.

    ``draft`` reads drafted > verified > accepted, or says why there was no draft.
    """
    first = reply.get("first_round", 0)
    return [_round_row(number, one) for number, one in enumerate(reply["rounds"], start=first)]


def arm_rows(reply: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each arm that a reply used, under ``ARM_HEADINGS``; most rounds first."""
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for one in reply["rounds"]:
        by_arm.setdefault(one["arm"], []).append(one)
    ordered = sorted(by_arm.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = [_arm_row(arm, rounds) for arm, rounds in ordered]
    return [*rows, _arm_row("all", reply["rounds"])] if len(rows) > 1 else rows


def _round_row(number: int, one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(number),
        str(one.get("position", "")),
        one["arm"],
        f"{one['learner']}: {one['reason']}",
        f"{one['propensity']:.3g}",
        _best_estimates(one["estimates"]),
        _draft(one),
        str(one["num_emitted"]),
        f"{one['draft_wait_ms']:.1f}",
        f"{one['step_ms']:.1f}",
        str(one["batch_size"]),
    )


def _best_estimates(estimates: Mapping[str, float]) -> str:
    highest = sorted(estimates.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {value:.3g}" for name, value in highest[:_BEST])


def _draft(one: Mapping[str, Any]) -> str:
    if one["draft_status"] == "ok":
        return f"{one['num_drafted']} > {one['num_verified']} > {one['num_accepted']}"
    return "" if one["draft_status"] == "none" else str(one["draft_status"])


def _arm_row(arm: str, rounds: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    count, tokens = len(rounds), sum(one["num_emitted"] for one in rounds)
    verified = sum(one["num_verified"] for one in rounds)
    accepted = sum(one["num_accepted"] for one in rounds)
    return (
        arm,
        str(count),
        str(tokens),
        f"{tokens / count:.2f}",
        f"{accepted / verified:.0%}" if verified else "",
        f"{sum(one['draft_wait_ms'] for one in rounds) / count:.1f}",
        f"{sum(one['step_ms'] for one in rounds) / count:.1f}",
    )
