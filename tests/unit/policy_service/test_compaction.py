from __future__ import annotations

import asyncio

from policy_service.api import ArmCounts, CellKey, OutcomeBatch, RequestFeatures
from policy_service.compaction import Step, next_step
from policy_service.config import PolicyConfig
from policy_service.contexts import GLOBAL, context_chain, is_specific
from policy_service.memory_store import CELL_BYTES, MemoryStore
from policy_service.merge import totals
from policy_service.service import MEASURE_PERIOD_S, PolicyService

ONE = ArmCounts(pulls=1)


def fine(tenant: str, system: int = 0) -> CellKey:
    features = RequestFeatures(tenant=tenant, route="chat", system_prompt_hash=str(system))
    return CellKey(context_chain(features)[0], "a:4", "1")


def test_what_fits_is_left_alone() -> None:
    assert next_step({0: {fine("a"): ONE}}, {0: 100}, 100) is None


def test_resolution_goes_before_age_and_old_epochs_before_new_ones() -> None:
    tenant = CellKey("n=a|r=chat|c=0", "a:4", "1")
    route = CellKey("r=chat|c=0", "a:4", "1")
    size = {0: 60, 600: 60}
    assert next_step({0: {fine("a"): ONE}, 600: {fine("a"): ONE}}, size, 100) == Step(
        0, [(fine("a"), tenant)]
    )
    assert next_step({0: {tenant: ONE}, 600: {fine("a"): ONE}}, size, 100) == Step(
        600, [(fine("a"), tenant)]
    )
    assert next_step({0: {tenant: ONE}, 600: {tenant: ONE}}, size, 100) == Step(
        0, [(tenant, route)]
    )
    assert next_step({0: {route: ONE}, 600: {route: ONE}}, size, 100) == Step(0)
    assert next_step({600: {route: ONE}}, {600: 600}, 100) is None, "the newest stays"


def test_the_store_stays_within_its_bound_and_no_root_sum_changes() -> None:
    class Clock:
        now = 1_000_000.0

        def __call__(self) -> float:
            return self.now

    async def test() -> None:
        clock, store = Clock(), MemoryStore()
        config = PolicyConfig(max_store_bytes=2**20)
        service = PolicyService(config, store, "m", clock)
        num_cells = 2**20 // CELL_BYTES // 3
        for sequence in range(1, 7):
            epoch = 999_600 - 600 * sequence
            deltas = {fine(f"t{n % 5}", n): ONE for n in range(num_cells)}
            await store.apply(OutcomeBatch("r", "i", sequence, epoch, "m", deltas))
        for _ in range(20):
            clock.now += MEASURE_PERIOD_S
            await service.publish()
        status = service.status()
        assert status["store_bytes"] <= status["store_max_bytes"] == 2**20
        assert status["epochs_compacted"] >= 3
        assert status["epochs_dropped"] == 0
        pool = await store.read("m", clock.now)
        root = CellKey(GLOBAL, "a:4", "1")
        assert totals(pool.epochs)[root].pulls == 6 * num_cells
        newest = pool.epochs[max(pool.epochs)]
        assert all(is_specific(key.context) for key in newest), "what is new is kept fine"

    asyncio.run(test())
