"""The ledger against a real store, with everything that a network and a failover may do to it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from policy_service.api import (
    ANY_GENERATION,
    ArmCounts,
    CellKey,
    OutcomeBatch,
    RequestFeatures,
)
from policy_service.config import PolicyConfig
from policy_service.contexts import GLOBAL, context_chain
from policy_service.ledger import MAX_BATCH_CELLS, PROBE_PERIOD_S, Ledger
from policy_service.memory_store import MemoryStore

NAMES = [context_chain(RequestFeatures(tenant=str(n)))[0] for n in range(4)]
KEYS = [CellKey(name, "a:4", "1") for name in NAMES]
ONE = ArmCounts(pulls=1, reward_tokens=2)


def ledger(**config: object) -> Ledger:
    return Ledger(PolicyConfig.model_validate(config), "replica", "inc", "m")


def pulls(batches: Sequence[OutcomeBatch]) -> int:
    return sum(counts.pulls for batch in batches for counts in batch.deltas.values())


async def stored_pulls(store: MemoryStore) -> int:
    epochs = (await store.read("m", 0.0)).epochs
    return sum(counts.pulls for cells in epochs.values() for counts in cells.values())


def test_unsent_counts_are_coalesced_and_sent_ones_are_not() -> None:
    book = ledger()
    book.add({KEYS[0]: ONE}, 0)
    book.add({KEYS[0]: ONE, KEYS[1]: ONE}, 1)
    assert book.num_unsent_cells == 2
    [first] = book.outgoing(1)
    assert (first.sequence, first.deltas[KEYS[0]].pulls) == (1, 2)
    book.add({KEYS[0]: ONE}, 2)
    assert book.outgoing(2) == [first], "frozen until acknowledged"
    book.reconcile(1, 3)
    [second] = book.outgoing(3)
    assert (second.sequence, pulls([second])) == (2, 1)
    book.reconcile(2, 4)
    assert book.is_settled


def test_epochs_are_kept_apart() -> None:
    book = ledger(epoch_s=10)
    book.add({KEYS[0]: ONE}, 9)
    book.add({KEYS[0]: ONE}, 10)
    assert [(batch.sequence, batch.epoch) for batch in book.outgoing(11)] == [(1, 0), (2, 10)]


def test_large_buffers_are_sent_in_parts() -> None:
    book = ledger()
    keys = [CellKey(GLOBAL, f"a:{n}", "1") for n in range(1, 2 * MAX_BATCH_CELLS + 2)]
    book.add(dict.fromkeys(keys, ONE), 0)
    assert [len(batch.deltas) for batch in book.outgoing(0)] == [500, 500, 1]


def test_a_full_buffer_widens_contexts_before_it_drops() -> None:
    book = ledger(max_unsent_cells=4)
    for index in range(10):
        name = context_chain(RequestFeatures(tenant=str(index)))[0]
        book.add({CellKey(name, "a:4", "1"): ONE}, 0)
    assert book.num_unsent_cells == 4
    [batch] = book.outgoing(0)
    assert pulls([batch]) == 10
    assert batch.deltas[CellKey("r=completions|c=0", "a:4", "1")].pulls == 7
    assert book.num_dropped_pulls == 0


def test_what_does_not_fit_is_counted() -> None:
    book = ledger(max_unsent_cells=1)
    book.add({CellKey(GLOBAL, f"a:{n}", "1"): ONE for n in range(1, 5)}, 0)
    assert pulls(book.outgoing(0)) + book.num_dropped_pulls == 4
    assert book.num_dropped_pulls == 3


def test_a_rolled_back_store_gets_the_tail_again() -> None:
    book = ledger()
    for sequence in range(1, 4):
        book.add({KEYS[0]: ONE}, sequence)
        book.outgoing(sequence)
        book.reconcile(sequence, sequence)
    book.add({KEYS[0]: ONE}, 4)
    book.outgoing(4)
    book.reconcile(1, 4)
    assert [batch.sequence for batch in book.outgoing(5)] == [2, 3, 4]


def test_an_idle_replica_probes_for_a_rollback() -> None:
    book = ledger(ack_retention_s=60)
    book.add({KEYS[0]: ONE}, 0)
    book.outgoing(0)
    book.reconcile(1, 0)
    [probe] = book.outgoing(1)
    assert probe.sequence == 1
    assert book.outgoing(1 + PROBE_PERIOD_S / 2) == []
    book.reconcile(0, 2)
    assert [batch.sequence for batch in book.outgoing(3)] == [1]
    book.reconcile(1, 4)
    assert book.outgoing(65) == [], "forgotten after the retention"


def test_lost_beyond_what_is_kept_starts_a_new_incarnation() -> None:
    book = ledger(ack_retention_s=5)
    for now in (0, 10):
        book.add({KEYS[0]: ONE}, now)
        book.outgoing(now)
        book.reconcile(1 + now // 10, now)
    book.add({KEYS[0]: ONE}, 11)
    [third] = book.outgoing(11)
    assert third.sequence == 3
    book.reconcile(0, 12)
    batches = book.outgoing(12)
    assert [(batch.incarnation, batch.sequence) for batch in batches] == [
        ("inc.1", 1),
        ("inc.1", 2),
    ]
    assert book.num_lost_batches == 1


def test_a_name_taken_by_another_process_is_given_up() -> None:
    book = ledger()
    book.add({KEYS[0]: ONE}, 0)
    book.outgoing(0)
    book.reconcile(50, 0)
    [batch] = book.outgoing(1)
    assert (batch.incarnation, batch.sequence, pulls([batch])) == ("inc.1", 1, 1)


def test_partial_acknowledgement_is_never_a_step_back() -> None:
    book = ledger()
    book.add({KEYS[0]: ONE}, 0)
    book.outgoing(0)
    book.reconcile(1, 0)
    book.add({KEYS[0]: ONE}, 1)
    book.outgoing(1)
    book.acknowledge(0, 1)
    assert [batch.sequence for batch in book.outgoing(2)] == [2]


EVENTS = st.one_of(
    st.tuples(st.just("learn"), st.integers(0, 3)),
    st.tuples(st.just("exchange"), st.just(0)),
    st.tuples(st.just("lose_request"), st.just(0)),
    st.tuples(st.just("lose_reply"), st.integers(0, 3)),
    st.tuples(st.just("delay"), st.just(0)),
    st.tuples(st.just("deliver_delayed"), st.integers(0, 5)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("roll_back"), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 400)),
)


class World:
    """A replica, a store that may fail over, and a network that loses, repeats and reorders."""

    def __init__(self) -> None:
        self.now = 0.0
        self.book = ledger(ack_retention_s=1e6)
        self.store = MemoryStore()
        self.saved = copy.deepcopy(self.store)
        self.delayed: list[list[OutcomeBatch]] = []
        self.truth = 0

    async def apply(self, batches: Sequence[OutcomeBatch]) -> int:
        last = 0
        for batch in batches:
            result = await self.store.apply(batch)
            last = result.sequence
            if result.status == "gap":
                break
        return last

    async def exchange(self) -> None:
        batches = self.book.outgoing(self.now)
        if batches:
            self.book.reconcile(await self.apply(batches), self.now)

    async def happen(self, event: str, value: int) -> None:
        if event == "exchange":
            await self.exchange()
        elif event == "lose_request":
            self.book.outgoing(self.now)
        elif event == "lose_reply":
            await self.apply(self.book.outgoing(self.now)[: value + 1])
        elif event == "deliver_delayed" and self.delayed:
            await self.apply(self.delayed[value % len(self.delayed)])
        else:
            self.happen_quietly(event, value)

    def happen_quietly(self, event: str, value: int) -> None:
        if event == "learn":
            self.book.add({KEYS[value]: ONE}, self.now)
            self.truth += 1
        elif event == "wait":
            self.now += value
        elif event == "checkpoint":
            self.saved = copy.deepcopy(self.store)
        elif event == "roll_back":
            self.store = copy.deepcopy(self.saved)
        elif event == "delay":
            self.delayed.append(self.book.outgoing(self.now))


@given(st.lists(EVENTS, max_size=60))
@settings(max_examples=300, deadline=None)
def test_counts_are_exact_whatever_happens(events: list[tuple[str, int]]) -> None:
    async def run() -> tuple[int, int]:
        world = World()
        for event, value in events:
            await world.happen(event, value)
        for _ in range(4):
            world.now += PROBE_PERIOD_S
            await world.exchange()
        assert world.book.is_settled
        assert world.book.num_lost_batches == world.book.num_dropped_pulls == 0
        return await stored_pulls(world.store), world.truth

    stored, truth = asyncio.run(run())
    assert stored == truth


def test_a_reset_forgets_what_was_not_sent_and_marks_what_follows() -> None:
    book = ledger()
    book.add({KEYS[0]: ONE}, 0)
    [first] = book.outgoing(0)
    assert first.generation == ANY_GENERATION, "nobody has told it yet"
    book.begin_generation(2)
    book.add({KEYS[0]: ONE}, 1)
    book.begin_generation(3)
    book.add({KEYS[1]: ONE}, 2)
    assert book.outgoing(2) == [first], "what was sent stays as it was"
    book.reconcile(1, 2)
    [second] = book.outgoing(3)
    assert (second.sequence, second.generation, set(second.deltas)) == (2, 3, {KEYS[1]})
    assert book.num_reset_pulls == 1
    book.begin_generation(1)
    book.add({KEYS[0]: ONE}, 4)
    book.reconcile(2, 4)
    assert [batch.generation for batch in book.outgoing(5)] == [3], "an older one is no news"


def test_the_first_word_of_a_generation_forgets_nothing() -> None:
    book = ledger()
    book.add({KEYS[0]: ONE}, 0)
    book.begin_generation(5)
    assert [(batch.generation, pulls([batch])) for batch in book.outgoing(1)] == [(5, 1)]
