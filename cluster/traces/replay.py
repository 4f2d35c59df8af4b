"""Replay a trace: a Verifier on paper, whose batch is full at every step. Pure.

``batch_size`` sequences run at once; when one ends the next takes its place. A step takes what the
step-time table says of its rows, sequences and cached tokens, and before that the wait for the
slowest of the drafters that were asked. A drafter drafts for the sequences of a step one after the
other, so its time is the sum of theirs; different drafters draft side by side.

Left out: prefill, the planner's own time, and any bound on the tokens of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.traces.format import Trace, TracedRequest
from policy_service.api import NONE, Arm, Outcome
from policy_service.step_times import StepTimes

EARLY_TOKENS = 32
"""The beginning of a reply is as many tokens."""


@dataclass(slots=True)
class Running:
    """A sequence of the batch.

    Attributes:
        name: Its session.
        request: The request it replays.
        done: Tokens of the reply that are known; the first one came with the prompt.
        ms: Its share of the steps' time, each shared out evenly.
        rounds: Rounds so far.
        early: Tokens and time when ``EARLY_TOKENS`` were known for the first time, the token that
            came with the prompt not counted.
    """

    name: str
    request: TracedRequest
    done: int = 1
    ms: float = 0.0
    rounds: int = 0
    early: tuple[int, float] | None = None

    @property
    def position(self) -> int:
        """Position in the trace."""
        return self.request.first + self.done - 1

    @property
    def num_cached(self) -> int:
        """Tokens in the cache: all but the last one."""
        return self.request.num_prompt + self.done - 1


@dataclass(slots=True)
class Pick:
    """What a sequence does in a step.

    Attributes:
        arm: The arm; its draft is that of the trace.
        size: Tokens asked for, at most; 0 without a draft.
        drafted: Nodes of the draft.
        kept: Of those, how many are verified.
        score: The draft's.
        parents: Of its nodes, as in ``TrimItem``; empty for a chain.
        accepted: Of those kept, the nodes that the reply went through; known after the step.
    """

    arm: Arm = NONE
    size: int = 0
    drafted: int = 0
    kept: int = 0
    score: float = 0.0
    parents: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    @property
    def status(self) -> str:
        """What came of the draft, as in ``Outcome.draft_status``."""
        if self.arm == NONE:
            return "none"
        return "ok" if self.drafted else "empty"


class Player(Protocol):
    """Chooses what the sequences of a batch do."""

    def open(self, sequence: Running) -> None:
        """Take note of a new sequence."""

    def plan(self, batch: Sequence[Running]) -> Sequence[Pick]:
        """Choose what each sequence does in the next step."""

    def learn(
        self, batch: Sequence[Running], picks: Sequence[Pick], outcomes: Sequence[Outcome]
    ) -> None:
        """Take note of what a step gave."""

    def close(self, sequence: Running) -> None:
        """Take note of a sequence's end."""


class DraftTable:
    """One drafter's part of a trace, for quick lookups.

    Attributes:
        lengths: As in ``Drafts``; so are the others.
    """

    __slots__ = ("_parents", "_shapes", "accepted", "lengths", "ms", "scores")

    def __init__(self, trace: Trace, drafter: str) -> None:
        drafts = trace.drafts[drafter]
        self._parents = drafts.parents
        self._shapes: dict[tuple[int, int], tuple[int, ...]] = {}
        self.lengths: list[list[int]] = drafts.lengths.tolist()
        self.accepted: list[list[int]] = drafts.accepted.tolist()
        self.scores: list[list[float]] = drafts.scores.tolist()
        self.ms: list[list[float]] = drafts.ms.tolist()

    def pick(self, arm: Arm, position: int, size: int) -> Pick:
        """Return an arm's draft of at most ``size`` tokens, none of it kept yet."""
        drafted = self.lengths[position][size - 1]
        score = self.scores[position][size - 1]
        return Pick(arm, size, drafted, 0, score, self._shape(position, size, drafted))

    def accepted_nodes(self, position: int, size: int, kept: int) -> tuple[int, ...]:
        """Return which of the first ``kept`` nodes of a draft the reply went through."""
        accepted = self.accepted[position][size - 1]
        return tuple([node for node in range(kept) if accepted >> node & 1]) if accepted else ()

    def _shape(self, position: int, size: int, drafted: int) -> tuple[int, ...]:
        """Return the parents of a tree's nodes; nothing for a chain."""
        key = (position, size)
        if key not in self._shapes:
            parents = tuple(self._parents[position, size - 1, :drafted].tolist())
            self._shapes[key] = () if parents == tuple(range(-1, drafted - 1)) else parents
        return self._shapes[key]


@dataclass(frozen=True, slots=True)
class Played:
    """One replayed reply.

    Attributes:
        request: What was replayed.
        ms: Its share of the steps' time.
        rounds: Rounds it took.
        early_tokens: Tokens of its beginning (``EARLY_TOKENS``, or a little more or less).
        early_ms: Its share of the time for those.
    """

    request: TracedRequest
    ms: float
    rounds: int
    early_tokens: int
    early_ms: float

    @property
    def tokens(self) -> int:
        """Tokens of the reply but for the first, which came with the prompt."""
        return self.request.num_tokens - 1


class Replay:
    """One Verifier and its time.

    Args:
        trace: What to replay.
        tables: ``DraftTable`` of each drafter.
        player: Chooses.
        batch_size: Sequences that run at once.
    """

    def __init__(
        self, trace: Trace, tables: dict[str, DraftTable], player: Player, batch_size: int
    ) -> None:
        self._times: StepTimes = trace.step_times
        self._tables = tables
        self._player = player
        self._batch_size = batch_size

    def run(self, queue: Iterator[TracedRequest], num_measured: int) -> list[Played]:
        """Replay until the first ``num_measured`` requests have ended; return those, in order.

        Args:
            queue: Requests without end, each with at least 2 tokens: the batch stays full, and
                those that started later go on while it takes to end the first ones.
            num_measured: How many to return.
        """
        played: dict[int, Played] = {}
        batch: list[Running] = []
        count = 0
        while len(played) < num_measured:
            while len(batch) < self._batch_size:
                batch.append(Running(str(count), next(queue)))
                self._player.open(batch[-1])
                count += 1
            self._step(batch)
            for sequence in [one for one in batch if one.done == one.request.num_tokens]:
                batch.remove(sequence)
                self._player.close(sequence)
                if int(sequence.name) < num_measured:
                    played[int(sequence.name)] = _played(sequence)
        return [played[index] for index in range(num_measured)]

    def _step(self, batch: Sequence[Running]) -> None:
        picks = self._player.plan(batch)
        for sequence, pick in zip(batch, picks, strict=True):
            if pick.kept:
                table = self._tables[pick.arm.drafter]
                pick.accepted = table.accepted_nodes(sequence.position, pick.size, pick.kept)
        outcomes = self._outcomes(batch, picks)
        self._player.learn(batch, picks, outcomes)
        for sequence, outcome in zip(batch, outcomes, strict=True):
            _advance(sequence, outcome.num_emitted, outcome.step_ms / len(batch))

    def _outcomes(self, batch: Sequence[Running], picks: Sequence[Pick]) -> list[Outcome]:
        """Return what a step's rounds cost and earned."""
        size, predict_ms = len(batch), self._times.predict_ms
        waits = self._waits(batch, picks)
        cached = sum([one.num_cached for one in batch])
        rows = size + sum([pick.kept for pick in picks])
        step_ms = predict_ms(rows, size, cached) + max(waits.values(), default=0.0)
        plain_ms = predict_ms(size, size, cached)
        outcomes = []
        for sequence, pick in zip(batch, picks, strict=True):
            wait_ms = waits.get(pick.arm.drafter, 0.0)
            left = sequence.request.num_tokens - sequence.done
            outcome = Outcome(
                num_drafted=pick.drafted,
                num_verified=pick.kept,
                num_accepted=len(pick.accepted),
                num_emitted=min(len(pick.accepted) + 1, left),
                step_ms=step_ms,
                draft_wait_ms=wait_ms,
                batch_size=size,
                draft_status=pick.status,
                plain_ms=plain_ms,
                alike_ms=predict_ms(size * (1 + pick.kept), size, cached) + wait_ms,
            )
            outcomes.append(outcome)
        return outcomes

    def _waits(self, batch: Sequence[Running], picks: Sequence[Pick]) -> dict[str, float]:
        """Return how long each drafter that was asked takes."""
        waits: dict[str, float] = {}
        for sequence, pick in zip(batch, picks, strict=True):
            name = pick.arm.drafter
            if name:
                ms = self._tables[name].ms[sequence.position][pick.size - 1] if pick.size else 0.0
                waits[name] = waits.get(name, 0.0) + ms
        return waits


def _advance(sequence: Running, num_emitted: int, ms: float) -> None:
    sequence.done += num_emitted
    sequence.ms += ms
    sequence.rounds += 1
    if sequence.early is None and sequence.done > EARLY_TOKENS:
        sequence.early = (sequence.done - 1, sequence.ms)


def _played(sequence: Running) -> Played:
    early_tokens, early_ms = sequence.early or (sequence.done - 1, sequence.ms)
    return Played(sequence.request, sequence.ms, sequence.rounds, early_tokens, early_ms)
