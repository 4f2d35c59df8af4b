"""Logs of learners that played prompts of ``learner_games``, and what others earn on the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policy_service.abilities import RoundContext
from policy_service.api import NONE, Arm, Decision, Learner, Outcome, RequestFeatures, RewardKind
from policy_service.decision_log.records import LoggedReply, LogHeader, RoundRecord
from policy_service.off_policy.reward_model import Yield, yield_of
from tests.learner_games import Game, Player

HEADER = LogHeader("tiny", "v1", "0f3a5577", "uniform", "tokens", 1.0, 1_700_000_000.0)
ARMS = (NONE, *(Arm(drafter, gamma) for drafter in ("suffix", "lookup") for gamma in (2, 6)))


@dataclass(frozen=True)
class Prompts:
    """Prompts that differ in how predictable their text is.

    Attributes:
        arms: Arms of all of them.
        rounds: Rounds of each.
        kind: What learners are paid.
    """

    arms: tuple[Arm, ...] = ARMS
    rounds: int = 40
    kind: RewardKind = "tokens"

    def draw(self, rng: np.random.Generator) -> Game:
        acceptance = {"suffix": rng.uniform(0.4, 0.9), "lookup": rng.uniform(0.1, 0.7)}
        return Game(self.arms, acceptance, self.kind)

    def logged(
        self,
        learner: Learner[Any],
        num_requests: int,
        seed: int,
        logged_as: Callable[[Decision], Decision] = lambda decision: decision,
    ) -> list[LoggedReply]:
        """Return the log of a learner; ``logged_as`` may lie about its decisions."""
        rng = np.random.default_rng(seed)
        replies = []
        for number in range(num_requests):
            game = self.draw(rng)
            player = Player.start(learner, self.arms, int(rng.integers(2**32)))
            records = [
                record_of(f"r{number}", index, self.arms, logged_as(decision), outcome)
                for index, (decision, outcome) in enumerate(played(player, game, self.rounds))
            ]
            replies.append(LoggedReply(HEADER, tuple(records)))
        return replies

    def true_yields(
        self, learner: Learner[Any], num_requests: int, seed: int, acceptance: float
    ) -> tuple[Yield, Yield]:
        """Return what a round yields when the learner really plays, on average.

        Its rounds come as slowly as in the evaluation: each of the log's with chance
        ``acceptance``.

        Returns:
            The mean over its own rounds, as ``replay`` has it, and that over the rounds of the log
            of the round that it is at, as the others have it.
        """
        rng = np.random.default_rng(seed)
        own, own_count, at, at_count = Yield(), 0, Yield(), 0
        for _ in range(num_requests):
            game = self.draw(rng)
            player = Player.start(learner, self.arms, int(rng.integers(2**32)))
            worths = [yield_of(outcome) for _, outcome in played(player, game, self.rounds + 1)]
            place = 0
            for _ in range(self.rounds):
                at, at_count = at + worths[place], at_count + 1
                if rng.random() < acceptance:
                    own, own_count, place = own + worths[place], own_count + 1, place + 1
        return own * (1 / own_count), at * (1 / at_count)


def played(player: Player, game: Game, rounds: int) -> Iterator[tuple[Decision, Outcome]]:
    """Play rounds one after the other."""
    context = RoundContext(game.arms, player.features)
    for _ in range(rounds):
        decision = player.decide(context)
        outcome = game.outcome(decision.arm, player.rng)
        player.learn(context, decision, outcome, game.kind)
        yield decision, outcome


def record_of(
    request_id: str,
    index: int,
    allowed: Sequence[Arm],
    decision: Decision,
    outcome: Outcome,
    **fields: Any,
) -> RoundRecord:
    """Return a round of a chain as it is logged."""
    record = RoundRecord(
        request_id=request_id,
        sequence="0",
        choice=0,
        index=index,
        position=1 + index,
        time=1_700_000_000.0 + index,
        features=RequestFeatures(tenant="acme", route="chat"),
        allowed=tuple(allowed),
        decision=decision,
        outcome=outcome,
        accepted_nodes=tuple(range(outcome.num_accepted)),
    )
    return replace(record, **fields)
