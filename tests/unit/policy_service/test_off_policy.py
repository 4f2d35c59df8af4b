"""Off-policy evaluation: against what learners really earn, and against logs that lie."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from policy_service.api import NONE, Arm, Decision, Learner
from policy_service.decision_log.records import LoggedReply
from policy_service.loading import learner_names, load_learner
from policy_service.off_policy.bootstrap import Interval
from policy_service.off_policy.counterfactual import Telling, telling
from policy_service.off_policy.doubts import doubts, usable
from policy_service.off_policy.evaluation import Evaluation, ReplayOptions, evaluate
from policy_service.off_policy.play import acceptance_of
from policy_service.off_policy.pool import LogPool, logged_step_times
from tests.learner_games import outcome_of
from tests.logged_games import ARMS, HEADER, Prompts, record_of

PROMPTS = Prompts(rounds=24)
OPTIONS = ReplayOptions(reward="tokens", prior_strength=0, num_resamples=300)
NUM_REQUESTS = 60
SEEDS = range(3)
LONG, SHORT = Arm("suffix", 6), Arm("suffix", 2)


def learner(name: str, **params: Any) -> Learner[Any]:
    return load_learner(name, params)


def one_evaluation(log: str, judged: Learner[Any], seed: int) -> Evaluation:
    return evaluate(PROMPTS.logged(learner(log), NUM_REQUESTS, seed), judged, OPTIONS)


@dataclass(frozen=True)
class Verdict:
    """How an estimate compares with the truth: whether it is covered, and by how much it is off."""

    estimator: str
    is_covered: bool
    deviations: float


def verdicts(log: str, name: str, params: Mapping[str, Any]) -> list[Verdict]:
    found = []
    for seed in SEEDS:
        evaluation = one_evaluation(log, learner(name, **params), seed)
        assert abs(evaluation.support.surprise) < 5
        is_adaptive = name not in ("fixed", "uniform")
        acceptance = round(evaluation.support.acceptance, 2) if is_adaptive else 1.0
        own, at = truth(name, params, acceptance)
        for estimator, estimate in evaluation.estimates.items():
            true = own if estimator == "replay" else at
            for interval, value in (
                (estimate.tokens_per_round, true[0]),
                (estimate.tokens_per_second, true[0] / true[1]),
            ):
                error = (interval.high - interval.low) / 3.92
                is_covered = interval.low <= value <= interval.high
                found.append(Verdict(estimator, is_covered, (interval.value - value) / error))
    return found


def truth(
    name: str, params: Mapping[str, Any], acceptance: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return tokens and seconds of a round, as ``Prompts.true_yields`` has them."""
    return _truth(name, tuple(params.items()), acceptance)


@cache
def _truth(
    name: str, params: tuple[tuple[str, Any], ...], acceptance: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    own, at = PROMPTS.true_yields(learner(name, **dict(params)), 300, 99, acceptance)
    return (own.tokens, own.seconds), (at.tokens, at.seconds)


CASES: Sequence[tuple[str, str, Mapping[str, Any]]] = [
    ("uniform", "fixed", {"arm": "suffix:6"}),
    ("uniform", "uniform", {}),
    ("uniform", "ucbspec", {}),
    ("uniform", "hedge", {}),
    ("exp3spec", "fixed", {"arm": "suffix:2"}),
    ("exp3spec", "uniform", {}),
    ("thompson", "fixed", {"arm": "suffix:6"}),
]


def test_estimates_agree_with_what_learners_really_earn() -> None:
    found = [one for log, name, params in CASES for one in verdicts(log, name, params)]
    for estimator in ("replay", "snips", "doubly_robust"):
        mine = [one for one in found if one.estimator == estimator]
        covered = np.mean([one.is_covered for one in mine])
        assert covered >= 0.86, (estimator, covered)
        assert abs(np.mean([one.deviations for one in mine])) < 0.6, estimator


def test_weights_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with weights left out misses the truth, so the test above can fail."""

    def unweighted(*arguments: Any) -> Telling:
        return replace(telling(*arguments), chance=1.0)

    monkeypatch.setattr("policy_service.off_policy.play.telling", unweighted)
    estimates = one_evaluation("exp3spec", learner("uniform"), 0).estimates
    (tokens, _), _ = truth("uniform", {}, 1.0)
    assert not holds(estimates["replay"].tokens_per_round, tokens)
    assert not holds(estimates["snips"].tokens_per_round, tokens)


def holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_wrong_propensities_are_caught(factor: float) -> None:
    def lie(decision: Decision) -> Decision:
        return replace(decision, propensity=min(1.0, decision.propensity * factor), estimates={})

    replies = PROMPTS.logged(learner("uniform"), NUM_REQUESTS, 0, lie)
    support = evaluate(replies, learner("fixed", arm="suffix:6"), OPTIONS).support
    assert abs(support.surprise) > 5
    assert "propensities do not agree" in doubts(support, ["uniform"])[0]


def test_propensities_of_another_arm_are_caught() -> None:
    """Of the arm that was likeliest, in place of the one that was drawn."""

    def likeliest(decision: Decision) -> Decision:
        return replace(decision, propensity=max(decision.estimates.values()), estimates={})

    replies = PROMPTS.logged(learner("exp3spec", rate=4.0), NUM_REQUESTS, 0, likeliest)
    support = evaluate(replies, learner("uniform"), OPTIONS).support
    assert abs(support.surprise) > 5


def test_a_log_of_the_longest_drafts_tells_all_of_their_drafter() -> None:
    replies = PROMPTS.logged(learner("fixed", arm="suffix:6"), NUM_REQUESTS, 3)
    accepted = [one.outcome.num_accepted for reply in replies for one in reply.rounds]
    evaluation = evaluate(replies, learner("fixed", arm="suffix:2"), OPTIONS)
    expected = 1 + np.mean([min(2, count) for count in accepted])
    for estimate in evaluation.estimates.values():
        assert estimate.tokens_per_round.value == pytest.approx(expected)
    support = evaluation.support
    assert (support.told_share, support.untold_share, support.acceptance) == (1.0, 0.0, 1.0)
    assert support.own_rounds == support.logged_rounds == PROMPTS.rounds
    [doubt] = doubts(support, ["fixed"])
    assert "left nothing to chance" in doubt


def test_a_log_without_support_says_so() -> None:
    replies = PROMPTS.logged(learner("fixed", arm="suffix:6"), NUM_REQUESTS, 3)
    evaluation = evaluate(replies, learner("fixed", arm="lookup:2"), OPTIONS)
    assert evaluation.support.untold_share == 1.0
    assert math.isnan(evaluation.estimates["snips"].tokens_per_round.value)
    assert math.isnan(evaluation.estimates["replay"].gain.low)
    told = " ".join(doubts(evaluation.support, ["fixed"]))
    assert "100% of the learner's choices could never have been seen" in told
    assert "too little to go by" in told


def test_drafts_that_were_cut_are_noticed() -> None:
    replies = [
        LoggedReply(HEADER, tuple(replace(one, outcome=cut(one.outcome)) for one in reply.rounds))
        for reply in PROMPTS.logged(learner("fixed", arm="suffix:6"), NUM_REQUESTS, 3)
    ]
    support = evaluate(replies, learner("fixed", arm="suffix:6"), OPTIONS).support
    assert support.cut_share == 1.0
    assert any("had their drafts not been cut" in doubt for doubt in doubts(support, ["x"]))


def cut(outcome: Any) -> Any:
    return replace(outcome, num_verified=3, num_accepted=min(3, outcome.num_accepted))


@pytest.mark.parametrize("name", learner_names())
def test_every_learner_can_be_judged(name: str) -> None:
    prompts = Prompts(rounds=12, kind="time")
    replies = prompts.logged(learner("uniform"), 25, 1)
    options = ReplayOptions(reward="time", num_resamples=100)
    evaluation = evaluate(replies, learner(name), options)
    assert evaluation == evaluate(replies, learner(name), options)  # a seed decides
    estimate = evaluation.estimates["doubly_robust"]
    assert 1.0 <= estimate.tokens_per_round.value < 5
    assert estimate.gain.low < estimate.gain.value < estimate.gain.high
    assert any("too little" in one for one in doubts(evaluation.support, ["uniform"]))


def test_the_gain_over_the_log_of_the_same_arm_is_one() -> None:
    replies = PROMPTS.logged(learner("fixed", arm="suffix:6"), NUM_REQUESTS, 5)
    gain = evaluate(replies, learner("fixed", arm="suffix:6"), OPTIONS).estimates["snips"].gain
    assert (gain.value, gain.low, gain.high) == pytest.approx((1.0, 1.0, 1.0))


def test_replies_without_a_choice_or_a_start_are_left_out() -> None:
    [whole] = PROMPTS.logged(learner("uniform"), 1, 0)
    forced = LoggedReply(HEADER, tuple(replace(one, allowed=(NONE,)) for one in whole.rounds))
    headless = replace(whole, is_from_start=False)
    chosen, notes = usable([whole, forced, headless, headless])
    assert chosen == [whole]
    assert [note.partition(" ")[0] for note in notes] == ["2", "1"]


def test_priors_come_from_earlier_replies() -> None:
    pool = LogPool("tokens", strength=5.0, shrinkage=20.0)
    first = record_of("a", 0, ARMS, Decision(LONG, "uniform", ""), outcome_of(LONG, 3))
    assert pool.priors(first, ARMS) == {}
    pool.add([first] * 10)
    late = replace(first, outcome=replace(first.outcome, draft_status="late"))
    pool.add([late] * 10)
    priors = pool.priors(first, ARMS)
    assert list(priors) == [LONG]
    assert priors[LONG].pulls == 5.0
    assert priors[LONG].mean == pytest.approx(4.0)
    assert LogPool("tokens", 0.0, 20.0).priors(first, ARMS) == {}


def test_step_times_are_read_off_the_log() -> None:
    outcome = replace(outcome_of(LONG, 3), batch_size=2)
    record = record_of("a", 0, ARMS, Decision(LONG, "uniform", ""), outcome)
    times = logged_step_times([record])
    assert times is not None
    assert (times.rows, times.ms) == ((2, 14), (10.0, 16.0))
    unknown = replace(record, outcome=replace(outcome, plain_ms=0.0, alike_ms=0.0))
    assert logged_step_times([unknown]) is None


def test_acceptance_leaves_a_twentieth_below() -> None:
    assert acceptance_of([]) == 1.0
    assert acceptance_of([(0.01, 1.0)] * 4 + [(0.3, 1.0)] * 96) == 0.3
    assert acceptance_of([(0.01, 1.0)] * 6 + [(0.3, 1.0)] * 94) == 0.01
    assert acceptance_of([(0.01, 10.0), (0.3, 1.0)]) == 0.01
