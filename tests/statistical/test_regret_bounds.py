"""The paper's regret bounds, checked on its own terms: stopping times, tokens as reward, no cost.

Rewards are drawn beforehand for every arm and round, so that each fixed arm's stopping time on the
same prompt is known. Seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from policy_service.abilities import RoundContext, choose
from policy_service.api import NONE, Arm, ArmPrior, CellKey, Decision, Learner, Snapshot
from policy_service.contexts import GLOBAL
from policy_service.loading import load_learner
from policy_service.priors import arm_priors
from policy_service.regret import (
    exp3spec_bound,
    fixed_stopping_times,
    pull_regret,
    stopping_time,
    stopping_time_regret,
    ucbspec_bound,
)

Table = NDArray[np.float64]
"""Tokens of each arm in each round, ``[num_rounds, num_arms]``."""

ARMS = (NONE, Arm("a", 2), Arm("b", 2))
LARGEST = 2
MEANS = (1.0, 1.6, 2.8)


@dataclass(frozen=True)
class Reply:
    """How a learner did on one prompt: rounds to the end, and pulls of each arm."""

    rounds: int
    pulls: tuple[int, ...]


def stochastic(means: Sequence[float], largest: int, rounds: int, seed: int) -> Table:
    """Return rewards that follow a law: one token and a binomial number of further ones."""
    rates = (np.array(means) - 1) / largest
    more = np.random.default_rng(seed).binomial(largest, rates, (rounds, len(means)))
    return 1.0 + more.astype(np.float64)


def reply(
    learner: Learner[Any],
    arms: Sequence[Arm],
    table: Table,
    length: float,
    seed: int = 0,
    priors: Mapping[Arm, ArmPrior] | None = None,
) -> Reply:
    """Play until ``length`` tokens are there."""
    rng = np.random.default_rng(seed)
    context = RoundContext(tuple(arms))
    state = learner.initial_state(context.allowed, priors or {})
    update_from = getattr(learner, "update_from", None)
    columns = {arm: column for column, arm in enumerate(arms)}
    pulls = [0] * len(arms)
    tokens, rounds = 0.0, 0
    while tokens < length:
        arm, reason, propensity, estimates = choose(learner, state, context, rng)
        column = columns[arm]
        earned = float(table[rounds, column])
        if update_from is None:
            state = learner.update(state, arm, earned)
        else:
            decision = Decision(arm, learner.name, reason, propensity, 0, estimates)
            state = update_from(state, context, decision, earned)
        pulls[column] += 1
        tokens += earned
        rounds += 1
    return Reply(rounds, tuple(pulls))


def measured_regret(name: str, tables: Sequence[Table], length: float) -> float:
    """Return the stopping-time regret of a learner over prompts of one kind."""
    learner = load_learner(name, {})
    rounds = [reply(learner, ARMS, table, length, seed).rounds for seed, table in enumerate(tables)]
    fixed = np.array([fixed_stopping_times(table, length) for table in tables])
    return stopping_time_regret(np.array(rounds, dtype=np.float64), fixed.astype(np.float64))


def test_ucbspec_stays_under_its_bound() -> None:
    """The bound (equation 42) is wide, but not so wide that uniform choice would stay under it."""
    length = 6000
    tables = [stochastic(MEANS, LARGEST, length, seed) for seed in range(8)]
    bound = ucbspec_bound(MEANS, length, LARGEST, delta=0.5)
    assert 0 < measured_regret("ucbspec", tables, length) < bound
    assert measured_regret("uniform", tables, length) > bound


def test_exp3spec_stays_under_its_bound_where_rewards_follow_a_law() -> None:
    length = 4000
    tables = [stochastic(MEANS, LARGEST, length, seed) for seed in range(8)]
    best = min(np.mean([fixed_stopping_times(table, length) for table in tables], axis=0))
    bound = exp3spec_bound(length, LARGEST, len(ARMS), best)
    assert 0 < measured_regret("exp3spec", tables, length) < bound
    assert measured_regret("uniform", tables, length) > bound


def regret_growth(name: str, horizons: Sequence[int]) -> list[float]:
    """Return the mean regret by pulls of replies that take so many rounds of the best arm."""
    learner = load_learner(name, {})
    sums = [0.0] * len(horizons)
    for seed in range(6):
        table = stochastic(MEANS, LARGEST, 3 * horizons[-1], seed)
        for index, horizon in enumerate(horizons):
            outcome = reply(learner, ARMS, table, horizon * max(MEANS), seed)
            sums[index] += pull_regret(outcome.pulls, MEANS) / 6
    return sums


def test_regret_of_ucbspec_grows_like_a_logarithm() -> None:
    """Each four-fold longer reply adds about the same; uniform choice loses four times as much."""
    short, middle, long = regret_growth("ucbspec", (250, 1000, 4000))
    assert long - middle < 1.5 * (middle - short)
    assert math.log(long / middle) / math.log(4) < 0.35
    few, many = regret_growth("uniform", (250, 1000))
    assert math.log(many / few) / math.log(4) > 0.9


def adversarial(length: int) -> Table:
    """Return rewards, fixed beforehand, that are bad wherever UCBSpec will look.

    Given the rewards UCBSpec has no secrets (ties are drawn with a known seed): the arm that it
    takes in a round earns one token in that round. Else the last arm earns the most there is, and
    the others half a token more than plain decoding.
    """
    learner, rng = load_learner("ucbspec", {}), np.random.default_rng(0)
    state = learner.initial_state(ARMS, {})
    table = np.full((length, len(ARMS)), 1.5)
    table[:, -1] = LARGEST + 1
    for row in range(length):
        arm = learner.select(state, ARMS, rng)[0]
        table[row, ARMS.index(arm)] = 1.0
        state = learner.update(state, arm, 1.0)
    return table


def test_exp3spec_survives_an_adversary_that_ucbspec_does_not() -> None:
    length = 3000
    table = adversarial(length)
    best = int(min(fixed_stopping_times(table, length)))
    bound = exp3spec_bound(length, LARGEST, len(ARMS), best)
    assert reply(load_learner("ucbspec", {}), ARMS, table, length).rounds == length
    exp3spec = load_learner("exp3spec", {})
    rounds = [reply(exp3spec, ARMS, table, length, seed).rounds for seed in range(8)]
    assert length - best > bound, "UCBSpec loses more than EXP3Spec may"
    assert np.mean(rounds) - best < 0.5 * bound
    uniform = reply(load_learner("uniform", {}), ARMS, table, length).rounds
    assert np.mean(rounds) < 0.85 * uniform


def pooled(arms: Sequence[Arm], prompts: int) -> dict[Arm, ArmPrior]:
    """Return the priors that replies to other prompts leave behind, by way of a snapshot."""
    pulls = dict.fromkeys(arms, 0)
    earned = dict.fromkeys(arms, 0.0)
    uniform = load_learner("uniform", {})
    for seed in range(1000, 1000 + prompts):
        table = prompt_table(seed)
        played = reply(uniform, arms, table, 60, seed)
        for arm, count, mean in zip(arms, played.pulls, table.mean(axis=0), strict=True):
            pulls[arm] += count
            earned[arm] += count * float(mean)
    cells = {CellKey(GLOBAL, str(arm)): (float(pulls[arm]), earned[arm]) for arm in arms}
    versions = dict.fromkeys(arms, "")
    return arm_priors(Snapshot(1, 0.0, "m", cells), (GLOBAL,), versions, shrinkage=20, strength=20)


POOL_ARMS = (NONE, Arm("a", 4), Arm("a", 8), Arm("b", 4), Arm("b", 8))


def prompt_table(seed: int) -> Table:
    """Return the rewards of one of many prompts that are alike, not equal."""
    noise = np.random.default_rng(seed).normal(0, 0.4, len(POOL_ARMS))
    means = np.clip(np.array([1.0, 2.0, 2.4, 3.2, 4.5]) + noise, 1.0, 9.0)
    means[0] = 1.0
    return stochastic(means.tolist(), 8, 200, seed + 1)


@pytest.mark.parametrize(
    ("name", "params"),
    [("ucbspec", {"scale": 0.25}), ("exp3spec", {}), ("thompson", {}), ("hedge", {})],
)
def test_pooled_priors_cut_the_early_loss(name: str, params: dict[str, Any]) -> None:
    """Over the first 32 tokens of a reply, at least a fifth of the regret is gone."""
    learner = load_learner(name, params)
    priors = pooled(POOL_ARMS, prompts=30)
    lost = {"cold": 0.0, "pooled": 0.0}
    for seed in range(80):
        table = prompt_table(seed)
        best = min(fixed_stopping_times(table, 32))
        lost["cold"] += reply(learner, POOL_ARMS, table, 32, seed).rounds - best
        lost["pooled"] += reply(learner, POOL_ARMS, table, 32, seed, priors).rounds - best
    assert lost["pooled"] < 0.8 * lost["cold"]


def test_stopping_times_lie_between_the_papers_limits() -> None:
    """Proposition 3.1: at least ``len / (L + 1)`` rounds, at most ``len``."""
    for seed in range(20):
        times = fixed_stopping_times(stochastic(MEANS, LARGEST, 500, seed), 500)
        assert all(500 / (LARGEST + 1) <= rounds <= 500 for rounds in times)
        assert times[0] == 500


def test_too_few_rounds_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"expected rounds for 10 tokens, got 2 with 3\.0"):
        stopping_time(np.array([1.0, 2.0]), 10)
    with pytest.raises(ValueError, match="got 0 with 0"):
        stopping_time(np.array([]), 1)
