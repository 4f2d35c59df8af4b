"""Cells, rates, effects, waits, guard and Ask of the learner ``goodput``."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters import shadow
from policy_service.api import EMPTY_SNAPSHOT, SHADOW, Arm, ArmCounts, CellKey, Snapshot
from policy_service.goodput.ask import Offers, ask_step
from policy_service.goodput.cells import (
    EMPTY,
    MAX_DEPTH,
    NUM_BUCKETS,
    NUM_COLUMNS,
    cell_name,
    columns_of,
    offered_tokens,
    parse_cell,
    score_bucket,
)
from policy_service.goodput.effects import Effects, Strength, fade, learnt
from policy_service.goodput.evidence import Counted, Evidence, pooled_counts
from policy_service.goodput.guard import Guard
from policy_service.goodput.rates import expit, shrunk_rates
from policy_service.goodput.tables import PRICES, draft_tables
from policy_service.goodput.waits import Waits
from policy_service.step_times import StepLoad, StepTimes
from replicas.shadow_cells import shadow_cells

SHAPE = (NUM_BUCKETS + 1, NUM_COLUMNS, 2)


@given(st.floats(-1, 1e12))
def test_scores_have_the_buckets_of_the_drafters(score: float) -> None:
    assert score_bucket(score) == shadow.score_bucket(score)


@given(st.integers(0, EMPTY), st.integers(0, NUM_COLUMNS - 1))
def test_names_of_cells_are_read_back(bucket: int, column: int) -> None:
    name = cell_name("my/odd_name", bucket, column)
    assert parse_cell(name) == ("my/odd_name", bucket, column)
    with pytest.raises(ValueError, match="an arm is"):
        Arm.parse(name)


@pytest.mark.parametrize(
    "name", ["none", "suffix:4", "a/b:3", "x/score99/depth1/rank0", "a/score1"]
)
def test_what_names_no_cell_is_left_alone(name: str) -> None:
    assert parse_cell(name) is None


def test_shadow_counts_are_read_as_cells() -> None:
    counts = {shadow.ShadowCell(5, 2, 0): (10, 4), shadow.ShadowCell(4, 2, 0): (5, 1)}
    cells = shadow_cells({("lookup", "v1"): counts})
    snapshot = Snapshot(
        1, 0.0, "m", {key: (one.pulls, one.reward_tokens) for key, one in cells.items()}
    )
    pooled = pooled_counts(snapshot, SHADOW)
    assert pooled["lookup", "v1"][2, 2].tolist() == [15, 5]


def test_what_lies_below_a_rejected_token_is_not_counted() -> None:
    chain = (-1, 0, 1, 2)
    assert offered_tokens(chain, (0, 1), has_ended=False) == [(0, True), (1, True), (2, False)]
    assert offered_tokens(chain, (0, 1), has_ended=True) == [(0, True), (1, True)]
    assert offered_tokens(chain, (0, 1, 2, 3), has_ended=False)[-1] == (3, True)
    tree = (-1, -1, 0, 1, 1)
    assert offered_tokens(tree, (1, 4), has_ended=False) == [
        (0, False),
        (1, True),
        (3, False),
        (4, True),
    ]
    assert columns_of(tree) == (1, MAX_DEPTH + 1, 2, 2, MAX_DEPTH + 1)


def rates_of(levels: list[np.ndarray]) -> np.ndarray:
    logits = shrunk_rates([level[None] for level in levels], 20.0).logits[0]
    return expit(logits)


def test_rates_shrink_towards_the_parent() -> None:
    root, own = np.zeros(SHAPE), np.zeros(SHAPE)
    root[3, 1] = 1000, 900
    own[3, 1] = 20, 4
    assert rates_of([root])[3, 1] == pytest.approx(0.9, abs=0.01)
    assert rates_of([root, own])[3, 1] == pytest.approx((4 + 20 * 0.9) / 40, abs=0.01)
    assert rates_of([root, np.zeros(SHAPE)])[3, 1] == pytest.approx(0.9, abs=0.01)


def test_one_cell_says_something_of_its_neighbours_and_little_of_others() -> None:
    root = np.zeros(SHAPE)
    root[6, 1:3] = 300, 285
    root[1, 1:3] = 300, 30
    rates = rates_of([root])
    assert rates[6, 5] > 0.85, "a deeper token of the good score"
    assert rates[1, 5] < 0.25, "a deeper token of the bad score"
    assert 0.2 < rates[4, 1] < 0.8, "a score never seen"


def after_token(effects: Effects, hit: bool, kappa: float = 6.0, change: float = 1e9) -> Effects:
    expected = expit(effects.shift)
    spread = expected * (1 - expected)
    return learnt(effects, hit - expected, spread, precision=0.2 * kappa, threshold=change)


def learn_tokens(hits: list[bool], kappa: float = 6.0) -> Effects:
    effects = Effects.zeros((1,))
    for hit in hits:
        effects = after_token(effects, hit, kappa)
    return effects


def test_a_prompts_shift_is_close_to_the_beta_posterior() -> None:
    hits = [index % 4 != 0 for index in range(40)]
    acceptance = float(expit(learn_tokens(hits).shift)[0])
    assert acceptance == pytest.approx((6 * 0.5 + 30) / (6 + 40), abs=0.03)


def test_a_strong_prior_moves_less() -> None:
    hits = [True] * 5
    assert learn_tokens(hits, kappa=20).shift < learn_tokens(hits, kappa=2).shift


def test_a_draft_of_which_nothing_was_offered_teaches_nothing() -> None:
    nothing = np.zeros(1, np.float32)
    before = learn_tokens([True] * 3)
    after = learnt(before, nothing, nothing, precision=1.0, threshold=5.0)
    assert after.fields.tolist() == before.fields.tolist()


def test_evidence_fades_back_to_the_context() -> None:
    effects = learn_tokens([True] * 20)
    for _ in range(400):
        fade(effects, 0.97, 1.2)
    assert abs(float(effects.shift[0])) < 0.01
    assert effects.information == pytest.approx(0, abs=1e-3)


def test_a_change_is_noticed_and_the_shift_starts_anew() -> None:
    effects = Effects.zeros((1,))
    for _ in range(60):
        effects = after_token(effects, True, change=6.0)
    assert effects.shift > 2.0
    starts = 0
    for _ in range(8):
        effects = after_token(effects, False, change=6.0)
        starts += float(effects.shift[0]) == 0.0
    assert starts >= 1


@pytest.mark.parametrize(("spread", "most", "least"), [(0.0, 20.0, 15.0), (2.5, 4.0, 2.0)])
def test_how_alike_prompts_are_is_learnt_from_them(
    spread: float, most: float, least: float
) -> None:
    """With shifts of variance tau^2, kappa is about 1 / (0.2 tau^2)."""
    rng, strength = np.random.default_rng(0), Strength(6.0)
    for _ in range(400):
        acceptance = 1 / (1 + np.exp(-rng.normal() * spread))
        hits = rng.random(30) < acceptance
        strength.add(float(hits.sum() - 15), 30 * 0.25)
    assert least <= strength.kappa <= most


def test_tables_are_sums_of_survival_up_to_length_and_price() -> None:
    logits = np.zeros((1, NUM_BUCKETS, 4), np.float32)  # acceptance one half
    shares = np.zeros((1, NUM_BUCKETS + 1), np.float32)
    shares[0, 2], shares[0, EMPTY] = 0.8, 0.2
    lengths = np.full((1, NUM_BUCKETS), 3.0, np.float32)
    tokens, rows = draft_tables(logits, np.zeros(1, np.float32), shares, lengths, np.array([2, 4]))
    assert tokens[0, :, 0] == pytest.approx([0.8 * 0.75, 0.8 * 0.875]), "a draft has three tokens"
    assert rows[0, :, 0] == pytest.approx([0.8 * 2, 0.8 * 3])
    dear = int(np.searchsorted(PRICES, 0.26))
    assert rows[0, :, dear] == pytest.approx([0.8, 0.8]), "only the first survives so well"


def offers(tokens: list[list[float]], waits: list[float], num_caps: int = 1) -> Offers:
    """Return offers of arms that verify a row for each token that they may bring."""
    table = np.array(tokens, np.float32)
    num, arms = table.shape
    shape = (arms // num_caps, num_caps, len(PRICES), num)
    full = np.repeat(table.T[:, None], len(PRICES), axis=1).reshape(shape)
    drafting = np.zeros(shape[:2], np.float32)
    rows = np.ones(shape, np.float32)
    return Offers(full, rows, None, np.array(waits), drafting, 0.1)


@given(st.data())
def test_ask_is_as_good_as_the_best_of_all_choices(data: st.DataObject) -> None:
    """With rows that cost nothing: every set of drafters, and every way to give them out."""
    num, drafters = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    gain = st.floats(0.02, 4.0)
    tokens = [[data.draw(gain) for _ in range(drafters)] for _ in range(num)]
    waits = [data.draw(st.floats(0.0, 30.0)) for _ in range(drafters)]
    load = StepLoad(num, StepTimes((1, 9), (10.0, 10.0)))
    plan = ask_step(offers(tokens, waits), num, load.time_of)
    rates = []
    for choice in itertools.product(range(-1, drafters), repeat=num):
        gained = sum(tokens[n][arm] for n, arm in enumerate(choice) if arm >= 0)
        wait = max((waits[arm] for arm in choice if arm >= 0), default=0.0)
        rates.append((num + gained) / (10.0 + wait))
    assert plan.tokens / plan.time_ms == pytest.approx(max(rates), rel=2e-3)


def test_nobody_waits_for_a_slow_drafter_that_few_need() -> None:
    load = StepLoad(4, StepTimes((1, 9), (10.0, 10.0)))
    tokens = [[1.0, 1.1], [1.0, 0.2], [1.0, 0.1], [1.0, 0.3]]
    plan = ask_step(offers(tokens, [0.5, 20.0]), 4, load.time_of)
    assert plan.arms.tolist() == [0, 0, 0, 0]
    assert plan.wait_ms == 0.5


def test_rows_that_cost_too_much_are_not_asked_for() -> None:
    tokens = [[0.9, 0.3]]
    cheap = StepLoad(1, StepTimes((1, 64), (10.0, 12.0)))
    dear = StepLoad(1, StepTimes((1, 2), (10.0, 20.0)))
    assert ask_step(offers(tokens, [0, 0]), 1, cheap.time_of).arms.tolist() == [0]
    assert ask_step(offers(tokens, [0, 0]), 1, dear.time_of).arms.tolist() == [-1]


def test_waits_are_told_apart_by_what_was_asked() -> None:
    waits = Waits(2)
    waits.grow(2)
    for turn in range(200):
        asked = 1 + turn % 8
        waits.observe(0, 0, asked, 2.0 + 0.5 * asked)
        waits.observe(1, 0, asked, 3.0)
    fixed, each = waits.shared_among(8)
    assert fixed == pytest.approx([2.0, 3.0], abs=0.25)
    assert each[:, 0] == pytest.approx([0.5, 0.0], abs=0.05)
    assert each[0, 1] == each[0, 0], "a length never asked is like the nearest"
    waits.forget(0)
    assert waits.shared_among(8)[0][0] == 0.0


def test_the_guard_says_which_is_better_only_when_it_is_sure() -> None:
    rng, guard = np.random.default_rng(0), Guard(1 / 64, 1 / 16, 2.0)
    assert guard.plain_chance(8) == 1 / 64
    for _ in range(40):
        guard.observe(8, True, 8, 10.0 + rng.random())
        guard.observe(8, False, 8 + 4 * rng.random(), 20.0 + rng.random())
    assert guard.verdict(8) == -1
    assert guard.plain_chance(8) == 1 - 1 / 16
    assert guard.verdict(64) == 0, "of other batch sizes nothing is known"
    for _ in range(800):
        guard.observe(8, True, 8, 10.0 + rng.random())
        guard.observe(8, False, 20 + 4 * rng.random(), 20.0 + rng.random())
    assert guard.verdict(8) == 1
    assert guard.plain_chance(8) == 1 / 512


def add(evidence: Evidence, rows: tuple[int, int, int], offered: int, accepted: int) -> None:
    """Count drafts of one token, empty ones where none was offered."""
    num = max(offered, 1)
    hits = (np.arange(num) < accepted)[:, None]
    one = np.zeros(num, np.intp)
    column = np.ones((num, 1), np.intp)
    was_offered = np.full((num, 1), offered > 0)
    evidence.add(Counted(np.array([rows] * num), one, one + 2, one, column, was_offered, hits))


def test_own_counts_are_sent_once_and_kept_until_the_pool_has_them() -> None:
    evidence = Evidence(max_contexts=4)
    evidence.set_drafter(0, "lookup", "v1")
    rows = tuple(evidence.acquire(name) for name in ("n=a|r=x", "r=x", "global"))
    assert len(rows) == 3
    chain = (rows[0], rows[1], rows[2])
    add(evidence, chain, 10, 4)
    key = CellKey("n=a|r=x", "lookup/score4/depth1/rank0", "v1")
    drafts = CellKey("n=a|r=x", "lookup/score4/depth0/rank0", "v1")
    assert evidence.take() == {
        key: ArmCounts(10, 4, reward_micros=4_000_000),
        drafts: ArmCounts(10),
    }
    assert evidence.take() == {}
    assert [level[0, 2, 1].tolist() for level in evidence.levels(chain)] == [[10, 4]] * 3
    evidence.set_snapshot(EMPTY_SNAPSHOT, 1.0, is_new=True)
    assert evidence.levels(chain)[2][0, 2, 1, 0] == 10, "sent, but maybe not in this snapshot"
    snapshot = Snapshot(1, 0.0, "m", {key: (8.0, 8.0)})
    evidence.set_snapshot(snapshot, 0.5, is_new=True)
    assert evidence.levels(chain)[2][0, 2, 1].tolist() == [4, 4], "now the pool has it"


def test_another_version_starts_without_counts_and_the_old_ones_are_still_sent() -> None:
    evidence = Evidence(max_contexts=4)
    evidence.set_drafter(0, "lookup", "v1")
    row = evidence.acquire("global")
    add(evidence, (row, row, row), 10, 4)
    evidence.set_drafter(0, "lookup", "v2")
    assert evidence.levels((row, row, row))[0].sum() == 0
    assert {key.drafter_version for key in evidence.take()} == {"v1"}


def test_rows_of_contexts_that_nobody_uses_are_used_again() -> None:
    evidence = Evidence(max_contexts=1)
    evidence.set_drafter(0, "lookup", "v1")
    rows = set()
    for number in range(200):
        row = evidence.acquire(f"n={number}")
        add(evidence, (row, row, row), 1, 1)
        rows.add(row)
        evidence.release(row)
        assert {key.context for key in evidence.take()} == {f"n={number}"}
        assert evidence.levels((row,))[0].sum() == 3, "a draft, a token offered and accepted"
    assert len(rows) <= 20
