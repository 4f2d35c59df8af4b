"""One decoding sequence in one step: what was chosen, drafted, verified, and what it earned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from drafters.api import EMPTY_DRAFT, Draft, NoiseKey
from drafters.client import DraftWanted
from drafters.features import HiddenStates
from policy_service.api import Arm, Decision, Outcome
from policy_service.decision_log.records import RoundRecord
from policy_service.step_times import StepTimes
from replicas.api import RoundReport
from replicas.engine.sequence import EngineSequence
from replicas.engine.verification import Verdict
from replicas.request_ids import split_reply_id
from replicas.round_reports import report_of

GetStates = Callable[[EngineSequence, int, int], HiddenStates]
"""Returns a sequence's hidden states at the cached positions from the one up to the other."""


@dataclass(slots=True)
class DecodingRound:
    """One decoding sequence in a step.

    Attributes:
        sequence: The sequence.
        decision: What the policy chose for it.
        num_wanted: Most tokens to draft.
        draft: The draft to verify, trimmed.
        num_drafted: Tokens that the drafter proposed.
        status: What came of the draft, as in ``Outcome.draft_status``.
        wait_ms: How long the step waited for it.
        verdict: What became of it.
    """

    sequence: EngineSequence
    decision: Decision
    num_wanted: int
    draft: Draft = EMPTY_DRAFT
    num_drafted: int = 0
    status: str = "none"
    wait_ms: float = 0.0
    verdict: Verdict = field(default_factory=lambda: Verdict((), ()))

    def wanted(
        self, states: Callable[[EngineSequence, int, int], HiddenStates] | None
    ) -> DraftWanted:
        """Return what to ask the drafter for.

        Args:
            states: Returns a sequence's hidden states; None if they are not kept.
        """
        request = self.sequence.request
        return DraftWanted(
            session_id=request.request_id,
            drafter=self.decision.arm.drafter,
            max_tokens=self.num_wanted,
            token_ids=self.sequence.token_ids,
            prompt_length=self.sequence.num_prompt,
            noise=NoiseKey(request.seed, request.choice_index, request.sampling.temperature),
            tenant=request.features.tenant,
            hidden_states=None if states is None else partial(states, self.sequence),
        )

    def outcome(self, step_ms: float, batch_size: int, cached: int, times: StepTimes) -> Outcome:
        """Return what the round cost and earned.

        Args:
            step_ms: Wall time of the step.
            batch_size: Sequences that decoded in it.
            cached: Tokens of those that were in the cache.
            times: What steps take.
        """
        rows_alike = batch_size * (1 + len(self.draft))
        return Outcome(
            num_drafted=self.num_drafted,
            num_verified=len(self.draft),
            num_accepted=len(self.verdict.accepted_nodes),
            num_emitted=len(self.verdict.token_ids),
            step_ms=step_ms,
            draft_wait_ms=self.wait_ms,
            batch_size=batch_size,
            draft_status=self.status,
            plain_ms=times.predict_ms(batch_size, batch_size, cached),
            alike_ms=times.predict_ms(rows_alike, batch_size, cached) + self.wait_ms,
        )

    @property
    def position(self) -> int:
        """Tokens of the reply before this round, once it is committed."""
        return self.sequence.num_emitted - len(self.verdict.token_ids)

    def report(self, outcome: Outcome) -> RoundReport:
        """Return the round, explained."""
        return report_of(self.decision, outcome, self.position)

    def record(self, outcome: Outcome, allowed: tuple[Arm, ...], now: float) -> RoundRecord:
        """Return the round as it is kept.

        Args:
            outcome: What it cost and earned.
            allowed: The arms that there were to choose from.
            now: Seconds since 1970.
        """
        request_id, sequence, choice = split_reply_id(self.sequence.id)
        arm = self.decision.arm
        return RoundRecord(
            request_id=request_id,
            sequence=sequence,
            choice=choice,
            index=self.sequence.num_rounds - 1,
            position=self.position,
            time=now,
            features=self.sequence.request.features,
            allowed=allowed if arm in allowed else (*allowed, arm),
            decision=self.decision,
            outcome=outcome,
            draft_score=self.draft.score,
            accepted_nodes=tuple(sorted(self.verdict.accepted_nodes)),
        )
