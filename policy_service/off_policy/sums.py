"""What is added up while a learner is played on a logged reply. Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from policy_service.api import Outcome
from policy_service.decision_log.records import RoundRecord
from policy_service.off_policy.counterfactual import Telling
from policy_service.off_policy.reward_model import Yield, yield_of


@dataclass(slots=True)
class ReplySums:
    """Sums over the rounds of one reply, from which all estimates are made.

    Attributes:
        rounds: Rounds of the log.
        told: Rounds that count.
        learnt: Rounds that the learner learnt from, its own.
        weight: Sum of the weights.
        weight_squares: Sum of their squares.
        learnt_tokens: Tokens of the rounds learnt from.
        learnt_seconds: Their seconds.
        weighted_tokens: Weighted tokens of the rounds that count.
        weighted_seconds: Their weighted seconds.
        robust_tokens: What the model expects of each choice, and the weighted error of that where
            it is told.
        robust_seconds: The same of seconds.
        log_tokens: Tokens of the log's own choices.
        log_seconds: Their seconds.
        untold: Choices that the log's learner never would have told.
        cut: Rounds that would have told the choice, had their draft not been cut.
        drawn: Rounds in which the log's learner left something to chance.
        choices: Rounds in which there was more than one arm.
        surprise: Sum over rounds of weight less what is expected of it; 0 on average where the
            log's propensities are right.
        surprise_variance: Variance of that.
    """

    rounds: float = 0.0
    told: float = 0.0
    learnt: float = 0.0
    weight: float = 0.0
    weight_squares: float = 0.0
    learnt_tokens: float = 0.0
    learnt_seconds: float = 0.0
    weighted_tokens: float = 0.0
    weighted_seconds: float = 0.0
    robust_tokens: float = 0.0
    robust_seconds: float = 0.0
    log_tokens: float = 0.0
    log_seconds: float = 0.0
    untold: float = 0.0
    cut: float = 0.0
    drawn: float = 0.0
    choices: float = 0.0
    surprise: float = 0.0
    surprise_variance: float = 0.0

    def row(self) -> tuple[float, ...]:
        """Return the sums in order."""
        return astuple(self)

    def count_log(self, record: RoundRecord) -> None:
        """Count a round as it was."""
        worth = yield_of(record.outcome)
        self.rounds += 1
        self.log_tokens += worth.tokens
        self.log_seconds += worth.seconds
        self.choices += len(record.allowed) > 1
        self.drawn += record.decision.propensity < 1

    def count_told(self, tell: Telling, outcome: Outcome | None, expected: Yield) -> None:
        """Count what a round says of the learner's choice.

        Args:
            tell: Whether it says anything, and with what chance.
            outcome: What it says; None if nothing.
            expected: What the model expects of the choice.
        """
        is_untold = tell.is_known and tell.chance <= 0
        weight = 1 / tell.chance if tell.is_told else 0.0
        self.untold += is_untold
        self.surprise += weight - (0.0 if is_untold else 1.0)
        if tell.is_known:
            self.surprise_variance += 0.0 if is_untold else 1 / tell.chance - 1
        else:
            self.surprise_variance += weight * (weight - 1) if tell.is_told else 0.0
        robust = expected
        if outcome is not None:
            worth = yield_of(outcome)
            robust = expected + (worth - expected) * weight
            self.told += 1
            self.weight += weight
            self.weight_squares += weight * weight
            self.weighted_tokens += weight * worth.tokens
            self.weighted_seconds += weight * worth.seconds
        self.cut += tell.is_told and outcome is None
        self.robust_tokens += robust.tokens
        self.robust_seconds += robust.seconds

    def count_learnt(self, outcome: Outcome) -> None:
        """Count a round that the learner learnt from."""
        worth = yield_of(outcome)
        self.learnt += 1
        self.learnt_tokens += worth.tokens
        self.learnt_seconds += worth.seconds
