"""The replayed Verifier: its clock, its batch, its pool; and that hindsight is no worse."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import TraceError
from cluster.traces.format import Trace
from cluster.traces.hindsight import Clairvoyant, Costs, best_arms
from cluster.traces.planning import PlannerPlayer
from cluster.traces.pool import ReplayedPool
from cluster.traces.replay import DraftTable, Played, Player, Replay
from policy_service.api import NONE, Arm, SpeculationOptions
from policy_service.config import PolicyConfig
from policy_service.options import arms_of
from tests.unit.cluster.random_traces import TIMES, random_trace

GAMMAS = (2, 4, 8)


def tables(trace: Trace) -> dict[str, DraftTable]:
    return {name: DraftTable(trace, name) for name in trace.versions}


def options_of(arm: Arm) -> SpeculationOptions:
    if arm == NONE:
        return SpeculationOptions(mode="off")
    return SpeculationOptions(drafter=arm.drafter, gamma=arm.gamma)


def run(
    trace: Trace, player: Player, batch_size: int = 1, count: int | None = None
) -> list[Played]:
    replay = Replay(trace, tables(trace), player, batch_size)
    return replay.run(cycle(trace.requests), count or len(trace.requests))


def fixed(trace: Trace, arm: Arm, batch_size: int = 1) -> list[Played]:
    player = PlannerPlayer(
        trace, tables(trace), PolicyConfig(), options=lambda request: options_of(arm)
    )
    return run(trace, player, batch_size)


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_clairvoyant_hindsight_and_fixed_arms_are_in_order(seed: int) -> None:
    trace = random_trace(seed, num_requests=4)
    arms = arms_of(list(trace.versions), GAMMAS)
    costs = Costs(trace, tables(trace), arms, 1)
    by_arm = {arm: fixed(trace, arm) for arm in arms}
    best = best_arms(costs, trace.requests)
    clairvoyant = run(trace, Clairvoyant(costs))
    for index, request in enumerate(trace.requests):
        times = {arm: played[index].ms for arm, played in by_arm.items()}
        assert times[best[request]] == pytest.approx(min(times.values()))
        assert clairvoyant[index].ms <= min(times.values()) + 1e-9
    assert sum(one.ms for one in clairvoyant) < sum(one.ms for one in by_arm[NONE])


def test_plain_decoding_takes_what_the_table_says() -> None:
    trace = random_trace(2)
    for played in fixed(trace, NONE):
        request = played.request
        cached = [request.num_prompt + position for position in range(request.num_positions)]
        assert played.ms == pytest.approx(sum(TIMES.predict_ms(1, 1, one) for one in cached))
        assert played.rounds == request.num_positions == played.tokens


def test_a_batch_shares_its_steps_evenly() -> None:
    trace = random_trace(3, num_requests=4)
    arm = Arm("suffix", 4)
    steps: list[tuple[int, float]] = []

    class Timed(PlannerPlayer):
        def learn(self, batch, picks, outcomes):  # type: ignore[no-untyped-def]  # as its base
            rows = len(batch) + sum(pick.kept for pick in picks)
            cached = sum(one.num_cached for one in batch)
            waits = sum(
                trace.drafts["suffix"].ms[one.position, pick.size - 1]
                for one, pick in zip(batch, picks, strict=True)
                if pick.size
            )
            expected = TIMES.predict_ms(rows, len(batch), cached) + waits
            assert outcomes[0].step_ms == pytest.approx(expected)
            steps.append((len(batch), outcomes[0].step_ms))
            super().learn(batch, picks, outcomes)

    config = PolicyConfig()
    player = Timed(trace, tables(trace), config, options=lambda request: options_of(arm))
    played = run(trace, player, batch_size=3, count=8)
    assert {size for size, _ in steps} == {3}
    assert sum(one.ms for one in played) < sum(ms for _, ms in steps)
    assert player.arms[str(arm)] > 20


def test_a_batch_is_played_by_the_same_drafts_whatever_runs_beside() -> None:
    trace = random_trace(4)
    alone, beside = fixed(trace, Arm("suffix", 8)), fixed(trace, Arm("suffix", 8), batch_size=4)
    assert [one.rounds for one in alone] == [one.rounds for one in beside]


def test_beginnings_are_timed_once() -> None:
    trace = random_trace(5, num_requests=8)
    for played in fixed(trace, Arm("prompt_lookup", 4)):
        if played.tokens >= 32:
            assert 32 <= played.early_tokens <= min(36, played.tokens)
        else:
            assert (played.early_tokens, played.early_ms) == (played.tokens, played.ms)


def test_what_was_learnt_in_one_replay_seeds_the_next() -> None:
    trace = random_trace(6)
    config = PolicyConfig(learner="ucbspec", params={"scale": 0.01}, gammas=GAMMAS)
    pool = ReplayedPool(config, trace.model)
    player = PlannerPlayer(trace, tables(trace), config, pool=pool)
    run(trace, player, count=12)
    pool.exchange(player.planner)
    later = PlannerPlayer(trace, tables(trace), config, pool=pool)
    unpooled = PlannerPlayer(trace, tables(trace), config)
    # Without priors each arm is pulled once at first, with them not.
    run(trace, later, count=1)
    run(trace, unpooled, count=1)
    assert len(unpooled.arms) == len(arms_of(list(trace.versions), GAMMAS))
    assert len(later.arms) < len(unpooled.arms)


def test_goodput_is_played_with_a_pool() -> None:
    trace = random_trace(7, num_requests=8)
    config = PolicyConfig(learner="goodput", gammas=GAMMAS)
    pool = ReplayedPool(config, trace.model)
    player = PlannerPlayer(trace, tables(trace), config, pool=pool)
    played = run(trace, player, batch_size=4, count=40)
    plain = fixed(trace, NONE, batch_size=4)
    assert sum(one.ms for one in played) / 40 < sum(one.ms for one in plain) / len(plain)


def test_arms_longer_than_what_was_recorded_are_refused() -> None:
    trace = random_trace(8, num_requests=1)
    with pytest.raises(TraceError, match=r"drafts of up to 8 tokens; gammas \(2, 16\)"):
        PlannerPlayer(trace, tables(trace), PolicyConfig(gammas=(2, 16)))
