"""Contract of the policy service: arms, decisions, outcomes, batches of counts, snapshots.

Everything here is plain data that pickles and, where it is stored or published, is made of
integers and strings. This module knows neither Ray nor Redis nor any learner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeVar

import numpy as np

RewardKind = Literal["tokens", "time"]
"""What a learner is paid for: tokens of a round, or tokens for the time that they took."""


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """One way to run a round: which drafter proposes and how many tokens at most.

    Attributes:
        drafter: Name of the drafter; empty for plain decoding.
        gamma: Most tokens to draft; 0 exactly when there is no drafter.
    """

    drafter: str
    gamma: int

    def __post_init__(self) -> None:
        if (self.gamma == 0) != (self.drafter == "") or self.gamma < 0:
            raise ValueError(
                f"an arm has a drafter and gamma >= 1, or neither; "
                f"got {self.drafter!r} and {self.gamma}"
            )

    def __str__(self) -> str:
        return f"{self.drafter}:{self.gamma}" if self.drafter else "none"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` of an arm gave.

        >>> Arm.parse("prompt_lookup:4")
        Arm(drafter='prompt_lookup', gamma=4)

        Raises:
            ValueError: If the text is no arm.
        """
        if text == "none":
            return cls("", 0)
        drafter, separator, gamma = text.rpartition(":")
        if not separator or not gamma.isdecimal():
            raise ValueError(f"an arm is 'none' or 'drafter:gamma', got {text!r}")
        return cls(drafter, int(gamma))


NONE = Arm("", 0)
"""Plain decoding: always an arm, and what everything falls back to."""


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """What a request says about speculation.

    Attributes:
        mode: ``off`` decodes plainly.
        drafter: Use only this drafter.
        gamma: Draft exactly up to this many tokens (0 is plain decoding).
        learner: Choose with this learner instead of the configured one.
        explain: Return every round's decision and outcome.
    """

    mode: Literal["auto", "off"] = "auto"
    drafter: str | None = None
    gamma: int | None = None
    learner: str | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class RequestFeatures:
    """What is known of a request before it runs; statistics are pooled by it.

    Attributes:
        tenant: Whose request it is; empty if unknown.
        route: ``chat`` or ``completions``.
        system_prompt_hash: Short hash of the system prompt; empty if there is none.
        code_likeness: Share of characters typical of code in the prompt, 0 to 1.
        num_prompt_tokens: Length of the prompt.
        temperature: Sampling temperature; 0 is greedy.
    """

    tenant: str = ""
    route: str = "completions"
    system_prompt_hash: str = ""
    code_likeness: float = 0.0
    num_prompt_tokens: int = 0
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """One round's choice for one sequence, with everything needed to explain or replay it.

    Attributes:
        arm: The arm chosen.
        learner: Which learner chose it.
        reason: In words: ``pinned``, ``seed pull``, ``highest index`` and so on.
        propensity: Probability with which this arm was chosen, in (0, 1].
        snapshot_version: Version of the pooled priors in use; 0 if there were none.
        estimates: What the learner thought of each arm, by ``str(arm)``.
    """

    arm: Arm
    learner: str
    reason: str
    propensity: float = 1.0
    snapshot_version: int = 0
    estimates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskItem:
    """One sequence of a step, before drafting.

    Attributes:
        sequence_id: The sequence, as it was opened.
        room: Most draft tokens that make sense now; a larger arm may still be chosen and is then
            cut by the engine. 0 asks for plain decoding.
        cached: Tokens of it that are in the cache.
    """

    sequence_id: str
    room: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class TrimItem:
    """One sequence of a step, after drafting.

    Attributes:
        sequence_id: The sequence, as it was opened.
        decision: What was chosen for it in this step.
        draft_length: Nodes of the draft that came back.
        draft_score: The drafter's own confidence in it, in its own unit (match length, expected
            accepted tokens); 0 if it said nothing.
        parents: Of each node the index of its parent, -1 for a child of the last committed token;
            empty for a chain.
    """

    sequence_id: str
    decision: Decision
    draft_length: int
    draft_score: float = 0.0
    parents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one round of one sequence cost and earned.

    Attributes:
        num_drafted: Tokens the drafter proposed.
        num_verified: Of those, how many were verified (after trimming).
        num_accepted: Of those, how many were accepted.
        num_emitted: Tokens the round added to the reply: accepted and one more, unless a stop or a
            limit cut it short.
        step_ms: Wall time of the whole step.
        draft_wait_ms: Of it, the wait for drafters.
        batch_size: Sequences that decoded in the step.
        draft_status: ``ok``, or why there was no draft: ``none``, ``empty``, ``late``, ``failed``,
            ``malformed``, ``need_context``, ``away``, ``busy``.
        plain_ms: What the step would have taken, by the engine's model of it, had all its sequences
            decoded plainly; 0 if unknown.
        alike_ms: What it would have taken, the wait for this draft included, had all its sequences
            verified as many tokens as this one; 0 if unknown.
    """

    num_drafted: int
    num_verified: int
    num_accepted: int
    num_emitted: int
    step_ms: float
    draft_wait_ms: float
    batch_size: int
    draft_status: str
    plain_ms: float = 0.0
    alike_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ArmCounts:
    """Additive integer counters of one (context, arm).

    Attributes:
        pulls: Rounds.
        reward_tokens: Tokens of those rounds, each round's accepted tokens and the one after them.
        drafted: Tokens proposed.
        verified: Tokens verified.
        accepted: Tokens accepted.
        step_us: Microseconds of the steps the rounds ran in.
        failed: Rounds whose drafter gave no usable answer (late, failed, away, malformed or without
            the context). They are not among the pulls and no other counter has them, for they say
            nothing about how good the arm is.
        reward_micros: Millionths of the rounds' time rewards (``policy_service.reward``).
    """

    pulls: int = 0
    reward_tokens: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    step_us: int = 0
    failed: int = 0
    reward_micros: int = 0

    def __add__(self, other: ArmCounts) -> ArmCounts:
        return ArmCounts(
            self.pulls + other.pulls,
            self.reward_tokens + other.reward_tokens,
            self.drafted + other.drafted,
            self.verified + other.verified,
            self.accepted + other.accepted,
            self.step_us + other.step_us,
            self.failed + other.failed,
            self.reward_micros + other.reward_micros,
        )

    def reward(self, kind: RewardKind) -> float:
        """Return the sum of the rounds' rewards of a kind."""
        return self.reward_micros / 1e6 if kind == "time" else float(self.reward_tokens)


SHADOW = "shadow"
"""Context, apart from all others, of drafts that were not made but only compared with what came."""


@dataclass(frozen=True, slots=True, order=True)
class CellKey:
    """Names one set of counters: a context and an arm, for one target model and drafter version.

    Attributes:
        context: Name of the context; ``global`` is the root.
        arm: ``str`` of the arm.
        drafter_version: Version of the arm's drafter; empty for plain decoding.
    """

    context: str
    arm: str
    drafter_version: str = ""


ANY_GENERATION = -1
"""Of a batch whose replica has not yet heard how often the counters were reset."""


@dataclass(frozen=True, slots=True)
class OutcomeBatch:
    """Counts that one replica gathered, to be added to the pool exactly once.

    Attributes:
        replica: Name of the replica.
        incarnation: Drawn when its process started.
        sequence: 1, 2, 3, ... within the incarnation.
        epoch: Start of the ten minutes in which the rounds were played, in seconds since 1970.
        target_model: Name of the target model.
        deltas: What to add.
        generation: How often the counters had been reset when the rounds were played; those of an
            earlier generation than the store's are not counted any more.
    """

    replica: str
    incarnation: str
    sequence: int
    epoch: int
    target_model: str
    deltas: Mapping[CellKey, ArmCounts]
    generation: int = ANY_GENERATION


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Pooled counts as published by the Policy, decayed by age.

    Attributes:
        version: Grows with every change; 0 is the empty snapshot.
        created_at: Seconds since 1970.
        target_model: Name of the target model.
        cells: Decayed (pulls, reward) of each cell; the reward is of the configured kind.
        generation: How often the counters have been reset.
    """

    version: int
    created_at: float
    target_model: str
    cells: Mapping[CellKey, tuple[float, float]]
    generation: int = 0


EMPTY_SNAPSHOT = Snapshot(0, 0.0, "", {})


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The Policy's answer to a replica's batches.

    Attributes:
        applied_sequence: Highest sequence of this incarnation that the store has; everything after
            it must be sent (again). Means nothing if no batch was sent.
        snapshot: Another snapshot than the replica has, or None.
        store_away: The store did not answer. ``applied_sequence`` is then only what this call
            applied before (0: nothing), and nothing follows from its being low.
    """

    applied_sequence: int
    snapshot: Snapshot | None = None
    store_away: bool = False


@dataclass(frozen=True, slots=True)
class ArmPrior:
    """What the pool knows of an arm before a prompt's first round.

    Attributes:
        pulls: Strength, in pulls.
        mean: Mean reward of a round.
    """

    pulls: float
    mean: float


class LearnerState(Protocol):
    """State of one prompt's learner: a frozen dataclass that survives a JSON round trip."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""


StateT = TypeVar("StateT", bound=LearnerState)

Choice = tuple[Arm, str, float, Mapping[str, float]]
"""What a learner chose: the arm, the reason, its propensity, and estimates by ``str(arm)``."""


class Learner(Protocol[StateT]):
    """One bandit algorithm. Every file in ``policy_service.learners`` has one, found by file name.

    A learner is stateless and immutable; one prompt's state is passed in and a new one returned.
    """

    @property
    def name(self) -> str:
        """The name that configuration and requests use."""

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> StateT:
        """Return the state of a new prompt, seeded from the pool."""

    def select(self, state: StateT, allowed: Sequence[Arm], rng: np.random.Generator) -> Choice:
        """Choose one of ``allowed``: (arm, reason, propensity, estimates). Changes nothing."""

    def update(self, state: StateT, arm: Arm, reward: float) -> StateT:
        """Return the state after ``arm`` earned ``reward``, in ``[0, gamma + 1]``."""
