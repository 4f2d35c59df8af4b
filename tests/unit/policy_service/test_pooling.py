"""Merging counts into snapshots, and priors from snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import (
    NONE,
    SHADOW,
    Arm,
    ArmCounts,
    ArmPrior,
    CellKey,
    RequestFeatures,
    Snapshot,
)
from policy_service.config import PolicyConfig
from policy_service.contexts import GLOBAL, context_chain
from policy_service.merge import age_weight, totals
from policy_service.pooling import Pooling
from policy_service.priors import arm_priors

ARM = Arm("lookup", 4)
ACME = context_chain(RequestFeatures(tenant="acme", route="chat"))
OTHER = context_chain(RequestFeatures(tenant="other", route="chat"))


def key(context: str, version: str = "1") -> CellKey:
    return CellKey(context, str(ARM), version)


def counts(pulls: int, reward: int) -> ArmCounts:
    return ArmCounts(pulls=pulls, reward_tokens=reward)


def pooled(
    epochs: dict[int, dict[CellKey, ArmCounts]], now: float = 600.0, **config: object
) -> dict[CellKey, tuple[float, float]]:
    return dict(Pooling(rules(**config)).pool(epochs, now))


def rules(**config: object) -> PolicyConfig:
    return PolicyConfig.model_validate(
        {"epoch_s": 600, "half_life_s": 600, "reward": "tokens", **config}
    )


def test_parents_are_sums() -> None:
    cells = pooled({0: {key(ACME[0]): counts(3, 9), key(OTHER[0]): counts(5, 5)}})
    assert cells[key(ACME[0])] == (3, 9)
    assert cells[key(ACME[1])] == cells[key(GLOBAL)] == (8, 14)


def test_a_parents_own_counts_are_added() -> None:
    cells = pooled({0: {key(ACME[0]): counts(3, 9), key(ACME[1]): counts(2, 2)}})
    assert cells[key(ACME[1])] == cells[key(GLOBAL)] == (5, 11)


def test_shadow_counts_are_in_no_sum() -> None:
    cells = pooled({0: {key(ACME[0]): counts(3, 9), key(SHADOW): counts(5, 5)}})
    assert cells[key(SHADOW)] == (5, 5)
    assert cells[key(GLOBAL)] == (3, 9)


def test_counts_fade_by_the_age_of_their_epoch() -> None:
    epochs = {0: {key(GLOBAL): counts(8, 16)}, 1200: {key(GLOBAL): counts(1, 1)}}
    assert pooled(epochs, now=1800)[key(GLOBAL)] == pytest.approx((8 * 0.25 + 1, 16 * 0.25 + 1))
    assert age_weight(-5, 600) == 1


def test_the_heaviest_contexts_are_kept_and_nothing_is_lost_above() -> None:
    epochs = {
        0: {
            key(context_chain(RequestFeatures(tenant=str(n)))[0]): counts(n, n)
            for n in range(1, 10)
        }
    }
    cells = pooled(epochs, max_contexts=2)
    assert sorted(cell[0] for name, cell in cells.items() if name.context[:2] == "n=") == [8, 9]
    assert cells[key(GLOBAL)][0] == 45


@given(st.lists(st.tuples(st.sampled_from([*ACME, *OTHER]), st.integers(0, 50)), max_size=20))
def test_the_root_has_every_pull(rounds: list[tuple[str, int]]) -> None:
    epochs = {
        600 * index: {key(name): counts(pulls, pulls)} for index, (name, pulls) in enumerate(rounds)
    }
    total = sum(pulls for _, pulls in rounds)
    assert totals(epochs).get(key(GLOBAL), ArmCounts()).pulls == total


def priors(
    cells: dict[CellKey, tuple[float, float]], chain: tuple[str, ...] = ACME, weight: float = 1.0
) -> dict[Arm, ArmPrior]:
    snapshot = Snapshot(1, 0.0, "m", cells)
    return arm_priors(
        snapshot, chain, {ARM: "1", NONE: ""}, shrinkage=20, strength=30, weight=weight
    )


def test_means_shrink_towards_the_parent_level_by_level() -> None:
    cells = {key(GLOBAL): (100.0, 200.0), key(ACME[1]): (20.0, 80.0), key(ACME[0]): (10.0, 50.0)}
    middle = (80 + 20 * 2.0) / (20 + 20)
    expected = (50 + 20 * middle) / (10 + 20)
    [prior] = priors(cells).values()
    assert prior.pulls == 30
    assert prior.mean == pytest.approx(expected)


def test_a_context_without_counts_takes_its_parents() -> None:
    assert priors({key(GLOBAL): (4.0, 10.0)}) == {ARM: ArmPrior(4.0, 2.5)}


def test_another_drafter_version_is_not_used() -> None:
    assert priors({key(GLOBAL, "2"): (100.0, 300.0)}) == {}


def test_age_weakens_but_does_not_move_a_prior() -> None:
    assert priors({key(GLOBAL): (4.0, 10.0)}, weight=0.5) == {ARM: ArmPrior(2.0, 2.5)}
    assert priors({key(GLOBAL): (4.0, 10.0)}, weight=0.0) == {}


@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(1, 9)), min_size=3, max_size=3))
def test_a_prior_lies_within_what_was_seen(levels: list[tuple[float, float]]) -> None:
    cells = {
        key(context): (pulls, pulls * mean)
        for context, (pulls, mean) in zip(ACME, levels, strict=True)
    }
    means = [mean for _, mean in levels]
    prior = priors(cells)[ARM]
    assert min(means) - 1e-6 <= prior.mean <= max(means) + 1e-6
    assert 0 < prior.pulls <= 30


def tenants(means: dict[str, tuple[int, float]]) -> dict[int, dict[CellKey, ArmCounts]]:
    """Return an epoch in which tenants played so many pulls with such a mean."""
    return {
        0: {
            key(context_chain(RequestFeatures(tenant=name, route="chat"))[0]): counts(
                pulls, round(pulls * mean)
            )
            for name, (pulls, mean) in means.items()
        }
    }


HONEST = {f"honest{n}": (100, 4.0) for n in range(12)}


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_tenant_that_collapses_acceptance_moves_the_root_by_its_share_at_most(
    share: float,
) -> None:
    cells = pooled(tenants({**HONEST, "attacker": (1_000_000, 1.0)}), max_tenant_share=share)
    for context in (GLOBAL, ACME[1]):
        pulls, reward = cells[key(context)]
        assert pulls == pytest.approx(1_001_200, rel=1e-6), "evidence is not lost"
        assert reward / pulls >= 4.0 - share * (4.0 - 1.0) - 1e-5
    own = cells[key(context_chain(RequestFeatures(tenant="attacker", route="chat"))[0])]
    assert own[1] / own[0] == pytest.approx(1.0), "it slows itself"


def test_a_tenant_without_places_is_known_all_the_same() -> None:
    epochs = tenants(HONEST)
    epochs[0][key("n=attacker|r=chat|c=0")] = counts(1_000_000, 1_000_000)
    for context in ("n=attacker|r=chat|s=x|c=0|l=0|t=0", "n=attacker|r=chat|s=y|c=0|l=0|t=0"):
        epochs[0][key(context)] = counts(1_000_000, 1_000_000)
    pulls, reward = pooled(epochs, max_tenant_share=0.25)[key(GLOBAL)]
    assert reward / pulls >= 4.0 - 0.25 * 3.0 - 1e-5


def test_rewards_that_no_round_can_earn_are_clipped() -> None:
    cells = pooled({0: {key(GLOBAL): counts(10, 10_000), key(ACME[0]): counts(0, 5)}})
    assert cells[key(GLOBAL)] == (10, 10 * (ARM.gamma + 1))
    other = CellKey(GLOBAL, "lookup/score1/depth0/rank0", "1")
    assert pooled({0: {other: counts(10, 160)}})[other] == (10, 160), "no arm, so no bound is known"


def test_a_tenant_has_so_many_contexts_in_a_snapshot() -> None:
    epoch = {
        key(f"n={tenant}|r=chat|s={n}|c=0|l=0|t=0"): counts(100 + n, 100)
        for tenant, num in (("many", 10), ("few", 2))
        for n in range(num)
    }
    cells = pooled({0: epoch}, max_contexts=6, max_contexts_per_tenant=3)
    names = sorted({name.context for name in cells if name.context.startswith("n=")})
    assert names == [
        *(f"n=few|r=chat|s={n}|c=0|l=0|t=0" for n in (0, 1)),
        *(f"n=many|r=chat|s={n}|c=0|l=0|t=0" for n in (7, 8, 9)),
    ]


CHANGES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([*ACME, *OTHER]), st.integers(1, 300)),
    max_size=12,
)


@given(CHANGES)
def test_what_was_computed_before_changes_nothing(changes: list[tuple[int, str, int]]) -> None:
    pooling, now = Pooling(rules()), 600.0
    epochs: dict[int, dict[CellKey, ArmCounts]] = {}
    for number, context, pulls in changes:
        now += 130.0
        epochs = {epoch: cells for epoch, cells in epochs.items() if epoch > now - 3000}
        epoch = 600 * number
        cells = dict(epochs.get(epoch, {}))
        cells[key(context)] = cells.get(key(context), ArmCounts()) + counts(pulls, 2 * pulls)
        epochs = {**epochs, epoch: cells}
        expected = dict(Pooling(rules()).pool(epochs, now))
        found = dict(pooling.pool(epochs, now))
        assert found.keys() == expected.keys()
        for name, value in found.items():
            assert value == pytest.approx(expected[name], rel=1e-5)


def test_numbers_of_cells_that_are_gone_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy_service.pooling.MANY_CELLS", 20)
    pooling = Pooling(rules())
    for step in range(50):
        names = [f"r=chat|c={step}.{n}" for n in range(10)]
        epochs = {600 * step: {key(name): counts(1, 1) for name in names}}
        cells = pooling.pool(epochs, 600 * step + 600)
        assert cells[key(GLOBAL)] == (10, 10)
        assert len(pooling._index) <= 40
