"""Shadow scores on their way to the pool: none lost, none taken for rounds, and they give way."""

from __future__ import annotations

import asyncio

from drafters.shadow import ShadowCell
from policy_service.api import ArmCounts, CellKey, RequestFeatures
from policy_service.config import PolicyConfig
from policy_service.contexts import context_chain
from policy_service.ledger import Ledger
from policy_service.memory_store import MemoryStore
from policy_service.service import PolicyService
from replicas.shadow_cells import shadow_cells

NOW = 1000.0
POOLED = {
    ("pld", "v1"): {ShadowCell(4, 1, 0): (10, 3), ShadowCell(4, 2, 0): (3, 1)},
    ("rest", "v2"): {ShadowCell(12, 1, 2): (7, 0)},
}
KEY = CellKey("shadow", "pld/score4/depth1/rank0", "v1")


def test_they_reach_the_snapshot_whatever_the_reward() -> None:
    async def scenario(reward: str) -> None:
        config = PolicyConfig.model_validate({"reward": reward})
        service = PolicyService(config, MemoryStore(), "m", lambda: NOW)
        ledger = Ledger(config, "r", "1", "m")
        for _ in range(2):
            ledger.add(shadow_cells(POOLED), NOW)
            reply = await service.sync(ledger.outgoing(NOW), 0)
            ledger.reconcile(reply.applied_sequence, NOW)
        await service.publish()
        snapshot = (await service.sync([], 0)).snapshot
        assert snapshot is not None
        assert snapshot.cells == {
            KEY: (20.0, 6.0),
            CellKey("shadow", "pld/score4/depth2/rank0", "v1"): (6.0, 2.0),
            CellKey("shadow", "rest/score12/depth1/rank2", "v2"): (14.0, 0.0),
        }

    for reward in ("tokens", "time"):
        asyncio.run(scenario(reward))


def test_rounds_have_a_place_where_shadow_counts_have_none_any_more() -> None:
    ledger = Ledger(PolicyConfig(max_unsent_cells=4), "r", "1", "m")
    many = {("pld", "v1"): {ShadowCell(4, depth, 0): (1, 1) for depth in range(1, 10)}}
    ledger.add(shadow_cells(many), NOW)
    assert (ledger.num_unsent_cells, ledger.num_dropped_pulls) == (3, 6)
    context = context_chain(RequestFeatures(tenant="acme"))[0]
    ledger.add({CellKey(context, "pld:4", "v1"): ArmCounts(pulls=1)}, NOW)
    assert (ledger.num_unsent_cells, ledger.num_dropped_pulls) == (4, 6)
