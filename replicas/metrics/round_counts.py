"""What rounds drafted, verified, accepted and emitted, by the arm that was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from policy_service.api import NONE
from policy_service.client import context_chain
from replicas.engine.rounds import DecodingRound
from replicas.engine.sequence import EngineSequence
from replicas.metrics.samples import Distribution, Labels, Sample, by_label
from replicas.metrics.series import DRAFT_SECONDS

FALLBACK_REASONS = (
    *("late", "failed", "malformed", "need_context", "away", "busy"),
    *("empty", "trimmed", "absent"),
)
ABSENT = frozenset({"no drafter", "drafter away"})
"""The planner's reasons for plain decoding where a draft would have been wanted."""

ArmKey = tuple[str, str, str, int]
"""Learner, context, drafter (empty for plain decoding), gamma."""


@dataclass(slots=True)
class ArmTally:
    """Sums of one arm's rounds.

    Attributes:
        rounds: Rounds.
        emitted: Tokens emitted.
        draft_tokens: Tokens verified.
        lengths: How many drafts had so many tokens accepted.
    """

    rounds: int = 0
    emitted: int = 0
    draft_tokens: int = 0
    lengths: dict[int, int] = field(default_factory=dict)

    @property
    def drafts(self) -> int:
        """Rounds that verified a draft."""
        return sum(self.lengths.values())

    @property
    def accepted(self) -> int:
        """Tokens accepted."""
        return sum(length * count for length, count in self.lengths.items())


_SERIES = {
    "specdec_rounds_total": "rounds",
    "specdec_emitted_tokens_total": "emitted",
    "specdec_drafts_total": "drafts",
    "specdec_draft_tokens_total": "draft_tokens",
    "specdec_accepted_tokens_total": "accepted",
}
_VLLM_SERIES = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
}


@dataclass(slots=True)
class RoundCounts:
    """Sums of all rounds. Not safe for use from several threads.

    Attributes:
        arms: By arm.
        fallbacks: Rounds without the draft that was wanted, by why.
        waits: By drafter, how long steps waited for it.
    """

    arms: dict[ArmKey, ArmTally] = field(default_factory=dict)
    fallbacks: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(FALLBACK_REASONS, 0))
    )
    waits: dict[str, Distribution] = field(default_factory=dict)

    def add(self, rounds: Sequence[DecodingRound]) -> None:
        """Add the rounds of one step."""
        waits_ms: dict[str, float] = {}
        for one in rounds:
            verdict, drafter = one.verdict, one.decision.arm.drafter
            num_verified = len(one.draft.token_ids)
            tally = self._arm(one)
            tally.rounds += 1
            tally.emitted += len(verdict.token_ids)
            if num_verified:
                tally.draft_tokens += num_verified
                length = len(verdict.accepted_nodes)
                tally.lengths[length] = tally.lengths.get(length, 0) + 1
            else:
                self._count_fallback(one)
            if drafter and one.wait_ms > waits_ms.get(drafter, -1.0):
                waits_ms[drafter] = one.wait_ms
        for drafter, wait_ms in waits_ms.items():
            self._waits(drafter).add(wait_ms / 1e3)

    def expect(self, drafters: Iterable[str]) -> None:
        """Show these drafters even before they were waited for."""
        for drafter in drafters:
            self._waits(drafter)

    def samples(self, labels: Labels) -> Iterator[Sample]:
        """Yield all sums."""
        for (learner, context, drafter, gamma), tally in self.arms.items():
            arm = {
                **labels,
                "learner": learner,
                "context": context,
                "drafter": drafter or "none",
                "gamma": str(gamma),
            }
            for name, attribute in _SERIES.items():
                yield Sample(name, arm, getattr(tally, attribute))
        for name, attribute in _VLLM_SERIES.items():
            yield Sample(name, labels, sum(getattr(one, attribute) for one in self.arms.values()))
        yield from self._positions(labels)
        yield from by_label("specdec_fallbacks_total", labels, "reason", self.fallbacks.items())
        for drafter, waits in self.waits.items():
            named = {**labels, "drafter": drafter}
            yield Sample("specdec_draft_wait_seconds", named, waits.copy())

    def _arm(self, one: DecodingRound) -> ArmTally:
        decision, sequence = one.decision, one.sequence
        arm, context = decision.arm, sequence.context or _name_context(sequence)
        key = (decision.learner, context, arm.drafter, arm.gamma)
        tally = self.arms.get(key)
        if tally is None:
            tally = self.arms[key] = ArmTally()
        return tally

    def _count_fallback(self, one: DecodingRound) -> None:
        if one.decision.arm != NONE:
            self.fallbacks["trimmed" if one.status == "ok" else one.status] += 1
        elif one.decision.reason in ABSENT:
            self.fallbacks["absent"] += 1

    def _waits(self, drafter: str) -> Distribution:
        waits = self.waits.get(drafter)
        if waits is None:
            waits = self.waits[drafter] = Distribution.empty(DRAFT_SECONDS)
        return waits

    def _positions(self, labels: Labels) -> Iterator[Sample]:
        """Yield how often each position was accepted: as often as a longer prefix than it."""
        by_arm: dict[tuple[str, int], Counter[int]] = {}
        for (_, _, drafter, gamma), tally in self.arms.items():
            by_arm.setdefault((drafter, gamma), Counter()).update(per_position(tally.lengths))
        everyone: Counter[int] = Counter()
        for (drafter, gamma), positions in by_arm.items():
            everyone.update(positions)
            named = {**labels, "drafter": drafter, "gamma": str(gamma)}
            yield from by_label(
                "specdec_accepted_tokens_per_pos_total", named, "position", positions.items()
            )
        yield from by_label(
            "vllm:spec_decode_num_accepted_tokens_per_pos_total",
            labels,
            "position",
            sorted(everyone.items()),
        )


def per_position(lengths: Mapping[int, int]) -> dict[int, int]:
    """Return how many drafts had each position accepted, as far as any had.

    Args:
        lengths: How many drafts had so many tokens accepted.

    >>> per_position({0: 5, 1: 2, 3: 1})
    {0: 3, 1: 1, 2: 1}
    """
    return {
        position: sum(count for length, count in lengths.items() if length > position)
        for position in range(max(lengths, default=0))
    }


def _name_context(sequence: EngineSequence) -> str:
    """Name a sequence's context as coarsely as metrics may: the one below the root."""
    sequence.context = context_chain(sequence.request.features)[-2]
    return sequence.context
