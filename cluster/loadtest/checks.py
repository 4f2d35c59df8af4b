"""What must hold after a load test. Pure: each check says what it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from cluster.loadtest.records import ArmTally, LoadResult, Sample
from cluster.loadtest.scenario import Checks

MIN_GAP = 0.1
"""Acceptance rates that differ by less say nothing about which drafts should be longer."""

MIN_ROUNDS = 200
"""Nor do fewer rounds than this."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check.

    Attributes:
        name: What must hold.
        passed: Whether it does.
        found: The figures it was judged by.
    """

    name: str
    passed: bool
    found: str


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """What a store gained while a load test went on, for one arm.

    Attributes:
        rounds: Rounds, those without a usable answer included.
        verified: Draft tokens verified, of the others.
        accepted: Draft tokens accepted, of the others.
    """

    rounds: int = 0
    verified: int = 0
    accepted: int = 0


def verdicts(
    checks: Checks,
    result: LoadResult,
    summary: Mapping[str, Any],
    stored: Mapping[str, StoredRounds] | None,
) -> list[Verdict]:
    """Return the verdict of every check that a scenario asks for.

    Args:
        checks: What it asks for.
        result: What was seen.
        summary: Its figures.
        stored: What Redis gained, by arm; None if nobody could look.
    """
    found = [_failed(checks, result)]
    if checks.scale_up:
        found.append(_scale_up(result.samples))
    if checks.scale_down:
        found.append(_scale_down(result.samples))
    if checks.arms_follow_mix:
        found.append(_arms_follow("workloads", summary["workloads"]))
        found.append(_arms_follow("phases", summary["phases"]))
    if checks.counts_add_up:
        found.append(_counts(result, stored))
    return found


def _failed(checks: Checks, result: LoadResult) -> Verdict:
    failed = sum(not record.is_ok for record in result.records)
    name = f"at most {checks.max_failed} requests fail"
    passed = failed <= checks.max_failed and bool(result.records)
    return Verdict(name, passed, f"{failed} of {len(result.records)} failed")


def _counts_of(samples: Sequence[Sample]) -> list[int]:
    return [sample.verifiers for sample in samples if not sample.problem]


def _scale_up(samples: Sequence[Sample]) -> Verdict:
    counts = _counts_of(samples)
    passed = bool(counts) and max(counts) > counts[0]
    found = f"{counts[0]} Verifiers at first, at most {max(counts)}" if counts else "no samples"
    return Verdict("Verifiers are added", passed, found)


def _scale_down(samples: Sequence[Sample]) -> Verdict:
    counts = _counts_of(samples)
    if not counts:
        return Verdict("Verifiers are taken away", False, "no samples")
    most = max(counts)
    # A replica that answers late for once is not seen in one sample: three in a row are needed.
    after = counts[len(counts) - 1 - counts[::-1].index(most) :][1:]
    passed = len(after) >= 3 and max(after[-3:]) < most
    return Verdict("Verifiers are taken away", passed, f"at most {most}, {counts[-1]} at the end")


def _arms_follow(what: str, groups: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """Judge every pair of groups whose acceptance differs by enough."""
    name = f"longer drafts where more is accepted, by {what}"
    pairs = list(_judged_pairs(groups))
    wrong = [text for text, is_right in pairs if not is_right]
    if not pairs:
        return Verdict(name, False, f"no two {what} whose acceptance differs by {MIN_GAP:g}")
    return Verdict(name, not wrong, "; ".join(wrong or [text for text, _ in pairs]))


def _judged_pairs(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    known = {
        name: group
        for name, group in groups.items()
        if group["acceptance_rate"] is not None and _num_rounds(group) >= MIN_ROUNDS
    }
    for one, other in combinations(known, 2):
        low, high = sorted((one, other), key=lambda name: float(known[name]["acceptance_rate"]))
        gap = known[high]["acceptance_rate"] - known[low]["acceptance_rate"]
        if gap >= MIN_GAP:
            shorter, longer = known[low]["mean_draft"], known[high]["mean_draft"]
            text = (
                f"{low} {shorter:.2f} tokens a round at {known[low]['acceptance_rate']:.0%}, "
                f"{high} {longer:.2f} at {known[high]['acceptance_rate']:.0%}"
            )
            yield text, longer > shorter


def _num_rounds(group: Mapping[str, Any]) -> int:
    return sum(int(tally["rounds"]) for tally in group["arms"].values())


def _counts(result: LoadResult, stored: Mapping[str, StoredRounds] | None) -> Verdict:
    name = "Redis holds exactly the rounds that replies tell of"
    if stored is None:
        return Verdict(name, False, "the address of Redis is not known")
    told = result.arms()
    wrong = [
        f"{arm}: replies {_three(told.get(arm, ArmTally()))}, Redis {_three(kept)}"
        for arm, kept in sorted(_with_all(told, stored).items())
        if _three(told.get(arm, ArmTally())) != _three(kept)
    ]
    rounds = sum(tally.rounds for tally in told.values())
    found = "; ".join(wrong) or f"{rounds} rounds of {len(told)} arms, verified and accepted tokens"
    return Verdict(name, not wrong and rounds > 0, found)


def _with_all(
    told: Mapping[str, ArmTally], stored: Mapping[str, StoredRounds]
) -> dict[str, StoredRounds]:
    return {arm: stored.get(arm, StoredRounds()) for arm in {*told, *stored}}


def _three(counts: ArmTally | StoredRounds) -> tuple[int, int, int]:
    return counts.rounds, counts.verified, counts.accepted
