"""What came back: one record a request, and samples of how the system was. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class ArmTally:
    """What the rounds of one arm were, in one reply or in many.

    Attributes:
        rounds: Rounds.
        verified: Draft tokens verified.
        accepted: Draft tokens accepted.
        emitted: Tokens added to replies.
    """

    rounds: int = 0
    verified: int = 0
    accepted: int = 0
    emitted: int = 0

    def add(self, other: ArmTally) -> None:
        """Add another tally to this one."""
        self.rounds += other.rounds
        self.verified += other.verified
        self.accepted += other.accepted
        self.emitted += other.emitted


@dataclass(slots=True)
class RequestRecord:
    """One request and its reply. Times are seconds from the start of the load test.

    Attributes:
        index: Of the arrival.
        phase: Its phase.
        workload: Its workload.
        prompt_id: Its prompt.
        planned_s: When it was to be sent.
        sent_s: When it was sent.
        tokens: (time, tokens of the reply by then), an entry for each piece that came.
        ended_s: When its reply ended or failed.
        error: Why it failed; empty if it did not.
        text: The reply.
        finish_reason: Why the reply ended.
        prompt_tokens: Tokens of the prompt.
        verifier: Who completed it.
        attempts: How many Verifiers it was given to.
        arms: Its rounds by arm.
    """

    index: int
    phase: str
    workload: str
    prompt_id: str
    planned_s: float
    sent_s: float = 0.0
    tokens: list[tuple[float, int]] = field(default_factory=list)
    ended_s: float = 0.0
    error: str = ""
    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    verifier: str = ""
    attempts: int = 1
    arms: dict[str, ArmTally] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        """Whether the whole reply came."""
        return not self.error

    @property
    def num_tokens(self) -> int:
        """Tokens of the reply that came."""
        return self.tokens[-1][1] if self.tokens else 0

    @property
    def ttft_ms(self) -> float | None:
        """From the planned time to the first token, so that a late client hides nothing."""
        return (self.tokens[0][0] - self.planned_s) * 1e3 if self.tokens else None

    @property
    def mean_itl_ms(self) -> float | None:
        """Mean time between tokens after the first piece; None for a reply of one piece."""
        first, last = (self.tokens[0], self.tokens[-1]) if self.tokens else ((0.0, 0), (0.0, 0))
        more = last[1] - first[1]
        return (last[0] - first[0]) * 1e3 / more if more else None

    def gaps_ms(self) -> Iterator[tuple[float, float, int]]:
        """Yield (time, ms a token, tokens) of each piece after the first.

        A step may add several tokens at once: they share the time since the piece before.
        """
        for (before_s, before), (at_s, now) in zip(self.tokens, self.tokens[1:], strict=False):
            if now > before:
                yield at_s, (at_s - before_s) * 1e3 / (now - before), now - before


@dataclass(frozen=True, slots=True)
class Sample:
    """How the system was at one moment.

    Attributes:
        at_s: When, in seconds from the start.
        verifiers: Verifiers that answered.
        drafters: Drafter workers that answered, by drafter.
        num_waiting: Requests that wait in Verifiers.
        num_running: Sequences in Verifiers' batches.
        problem: Why there is nothing to say; empty if there is.
    """

    at_s: float
    verifiers: int = 0
    drafters: Mapping[str, int] = field(default_factory=dict)
    num_waiting: int = 0
    num_running: int = 0
    problem: str = ""


@dataclass(slots=True)
class LoadResult:
    """All that a load test saw.

    Attributes:
        records: One a request, in the order of sending.
        samples: How the system was, oldest first.
        wall_s: From the start to the last sample.
    """

    records: list[RequestRecord]
    samples: list[Sample]
    wall_s: float

    def arms(self) -> dict[str, ArmTally]:
        """Return the rounds of all replies by arm."""
        return total_arms(self.records)


def total_arms(records: list[RequestRecord]) -> dict[str, ArmTally]:
    """Return the rounds of some replies by arm."""
    total: dict[str, ArmTally] = {}
    for record in records:
        for arm, tally in record.arms.items():
            total.setdefault(arm, ArmTally()).add(tally)
    return total
