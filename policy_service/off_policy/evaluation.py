"""Off-policy evaluation: what another learner would have earned, from the log of the one that ran.

Three estimates, of tokens and of seconds apart, so that a rate is a ratio of sums:

* ``replay`` (Li, Chu, Langford, Wang 2011, arXiv 1003.5956): the mean over the rounds that the
  learner met and was allowed to learn from, which are distributed as its own.
* ``snips`` (Swaminathan, Joachims 2015): all rounds that tell the learner's choice, weighted with
  one over the chance of that and divided by the sum of the weights.
* ``doubly_robust`` (Dudik, Langford, Li 2011, arXiv 1103.4601): means by arm and batch size for
  every choice, corrected by the weighted error where it is told. Right if either the means or the
  log's propensities are.

How the learner is played, and what a round tells of arms that were not chosen, is said in
``play`` and ``counterfactual``. All three take the rounds of a reply as exchangeable: an
arm is worth the same early and late in it.

No I/O.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policy_service.api import Arm, Learner, Outcome, RewardKind
from policy_service.decision_log.records import LoggedReply, RoundRecord
from policy_service.full_information import reveals
from policy_service.off_policy.bootstrap import Estimate, Floats, column, estimates_of
from policy_service.off_policy.counterfactual import would_have_been
from policy_service.off_policy.play import OffPolicyPlayer, acceptance_of
from policy_service.off_policy.pool import LogPool, logged_step_times
from policy_service.off_policy.reward_model import MeanModel
from policy_service.off_policy.sums import ReplySums

_PILOT_REPLIES = 100


@dataclass(frozen=True, slots=True)
class Support:
    """How much the estimates rest on.

    Attributes:
        requests: Requests.
        replies: Replies.
        rounds: Rounds of the log.
        told_share: Share of rounds that told the learner's choice.
        untold_share: Share of choices that the log's learner never would have told.
        cut_share: Share of rounds that told nothing because their draft was cut.
        drawn_share: Share of the log's choices that left something to chance.
        effective_rounds: Rounds of equal weight that would be worth as much.
        effective_requests: The same of requests.
        own_rounds: Rounds of a reply that the learner could learn from, on average.
        logged_rounds: Rounds of a reply in the log, on average.
        acceptance: The constant ``c`` of ``play``.
        surprise: By how many standard deviations the weights differ from what they should be.
    """

    requests: int
    replies: int
    rounds: int
    told_share: float
    untold_share: float
    cut_share: float
    drawn_share: float
    effective_rounds: float
    effective_requests: float
    own_rounds: float
    logged_rounds: float
    acceptance: float
    surprise: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the log says of a learner.

    Attributes:
        log: What the log's own choices yielded.
        estimates: By name of the estimator.
        support: What that rests on.
    """

    log: Estimate
    estimates: Mapping[str, Estimate]
    support: Support


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to evaluate.

    Attributes:
        reward: What the learner is paid for.
        prior_strength: Most pulls that a prior from earlier replies is worth; 0 for none.
        shrinkage: Pulls of the parent context mixed into each one.
        num_resamples: Resamples of the bootstrap.
        seed: Of all draws.
    """

    reward: RewardKind = "time"
    prior_strength: float = 20.0
    shrinkage: float = 20.0
    num_resamples: int = 1000
    seed: int = 0


def evaluate(
    replies: Sequence[LoggedReply], learner: Learner[Any], options: ReplayOptions
) -> Evaluation:
    """Judge a learner by logged replies.

    Args:
        replies: By the time of their first round; not empty, each with more than one arm somewhere.
        learner: The learner.
        options: How.
    """
    rng = np.random.default_rng(options.seed)
    run = _Run(replies, learner, options)
    pilot = run.player(rng, 1.0)
    run.play(pilot, replies[:_PILOT_REPLIES])
    acceptance = acceptance_of(pilot.chances)
    table = run.play(run.player(rng, acceptance), replies)
    by_request = _by_request(replies, table)
    estimates = estimates_of(by_request, options.num_resamples, rng)
    log = estimates.pop("log")
    return Evaluation(log, estimates, _support(len(table), by_request, acceptance))


def told_rounds(replies: Sequence[LoggedReply]) -> Iterator[tuple[Arm, Outcome]]:
    """Return the outcomes that rounds tell, of their own arm and of others."""
    for reply in replies:
        for record in reply.rounds:
            for arm in record.allowed:
                if reveals(record.decision.arm, arm):
                    outcome = would_have_been(record, arm, lambda _, length, __: length)
                    if outcome is not None:
                        yield arm, outcome


class _Run:
    """A learner and a log."""

    def __init__(
        self, replies: Sequence[LoggedReply], learner: Learner[Any], options: ReplayOptions
    ) -> None:
        self._learner, self._options = learner, options
        self._model = MeanModel(told_rounds(replies))
        self._step_times = logged_step_times(one for reply in replies for one in reply.rounds)

    def player(self, rng: np.random.Generator, acceptance: float) -> OffPolicyPlayer:
        return OffPolicyPlayer(
            self._learner, self._options.reward, self._model, self._step_times, rng, acceptance
        )

    def play(self, player: OffPolicyPlayer, replies: Sequence[LoggedReply]) -> Floats:
        """Return the sums of each reply, ``[num_replies, len(ReplySums)]``."""
        options = self._options
        pool = LogPool(options.reward, options.prior_strength, options.shrinkage)
        rows = []
        for reply in replies:
            first = reply.rounds[0]
            arms = {arm for record in reply.rounds for arm in record.allowed}
            rows.append(player.play(reply.rounds, pool.priors(first, sorted(arms))).row())
            pool.add(reply.rounds)
        return np.array(rows, dtype=np.float64)


def _by_request(replies: Sequence[LoggedReply], table: Floats) -> Floats:
    """Return the sums of each request, whose replies have the same prompt."""
    numbers: dict[tuple[str, str], int] = defaultdict(lambda: len(numbers))
    index = [numbers[_request(reply.rounds[0])] for reply in replies]
    sums = np.zeros((len(numbers), table.shape[1]))
    np.add.at(sums, index, table)
    return sums


def _request(record: RoundRecord) -> tuple[str, str]:
    return record.request_id, record.features.tenant


def _support(num_replies: int, by_request: Floats, acceptance: float) -> Support:
    total = ReplySums(*by_request.sum(axis=0).tolist())
    weights = column(by_request, "weight")
    squares = float((weights * weights).sum())
    variance = total.surprise_variance
    return Support(
        requests=len(by_request),
        replies=num_replies,
        rounds=int(total.rounds),
        told_share=total.told / total.rounds,
        untold_share=total.untold / total.rounds,
        cut_share=total.cut / total.rounds,
        drawn_share=total.drawn / max(1.0, total.choices),
        effective_rounds=total.weight**2 / total.weight_squares if total.told else 0.0,
        effective_requests=total.weight**2 / squares if squares else 0.0,
        own_rounds=total.learnt / num_replies,
        logged_rounds=total.rounds / num_replies,
        acceptance=acceptance,
        surprise=total.surprise / variance**0.5 if variance > 0 else 0.0,
    )
