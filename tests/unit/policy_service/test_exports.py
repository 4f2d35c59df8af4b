"""Exports: the journey through a file, and taking one over exactly once."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.errors import ExportError, StoreUnavailableError
from policy_service.exports import Export, export_text, parse_export
from policy_service.ledger import MAX_BATCH_CELLS
from policy_service.memory_store import MemoryStore
from policy_service.store import Applied
from policy_service.transfer import Imported, forget, put_export, take_export

EPOCH = int(time.time() // 600) * 600
KEYS = st.builds(CellKey, st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
COUNTS = st.builds(ArmCounts, *[st.integers(0, 2**50)] * 8)
CELLS = st.dictionaries(KEYS, COUNTS, min_size=1, max_size=4)
SMALL = Export("x1", "m", 1.5, {EPOCH: {CellKey("global", "a:4", "gone"): ArmCounts(pulls=3)}})


@given(st.dictionaries(st.integers(0, 10**9), CELLS, max_size=3))
def test_the_journey(epochs: dict[int, dict[CellKey, ArmCounts]]) -> None:
    export = Export("name", "a/model", 12.25, epochs)
    assert parse_export(export_text(export)) == export


def test_other_files_are_refused() -> None:
    good = json.loads(export_text(SMALL))
    cells = [*good["cells"][0][:4], 4, *good["cells"][0][5:]]
    for change, message in (
        ({"version": 2}, "version 2; this version knows 1"),
        ({"format": "other"}, "expected format"),
        ({"cells": [cells]}, "not those that were written"),
        ({"name": 7}, "expected a text"),
    ):
        text = json.dumps({**good, **change})
        with pytest.raises(ExportError, match=message):
            parse_export(text)
    for text in ("", "[]", export_text(SMALL)[:-20], json.dumps(dict.fromkeys(good, 1))):
        with pytest.raises(ExportError):
            parse_export(text)


def test_negative_counts_are_refused() -> None:
    export = Export("x", "m", 0.0, {EPOCH: {CellKey("global", "none"): ArmCounts(pulls=-1)}})
    with pytest.raises(ExportError, match="corrupt"):
        parse_export(export_text(export))


class FailingStore(MemoryStore):
    """Fails at a call, before or after doing what it was asked."""

    def __init__(self, fail_at: int, is_after: bool) -> None:
        super().__init__()
        self.left, self.is_after = fail_at, is_after

    async def apply(self, batch: OutcomeBatch) -> Applied:
        self.left -= 1
        if self.left == 0 and not self.is_after:
            raise StoreUnavailableError("gone")
        applied = await super().apply(batch)
        if self.left == 0:
            raise StoreUnavailableError("gone")
        return applied


def large() -> Export:
    cells = {
        CellKey(f"r=x|c={n}", "a:4", "v"): ArmCounts(pulls=n) for n in range(2 * MAX_BATCH_CELLS)
    }
    return Export("x2", "m", 0.0, {EPOCH: cells, EPOCH - 600: cells})


@pytest.mark.parametrize("fail_at", [1, 2, 4])
@pytest.mark.parametrize("is_after", [False, True])
def test_cut_short_anywhere_it_counts_once(fail_at: int, is_after: bool) -> None:
    async def test() -> None:
        store, export = FailingStore(fail_at, is_after), large()
        with pytest.raises(StoreUnavailableError):
            await put_export(store, "m", export)
        done = await put_export(store, "m", export)
        assert done.num_added + done.num_known == 4
        assert await put_export(store, "m", export) == Imported(0, 4)
        assert (await store.read("m", EPOCH)).epochs == export.epochs

    asyncio.run(test())


def test_what_was_there_is_added_to_and_a_reset_lets_it_in_again() -> None:
    async def test() -> None:
        source, store = MemoryStore(), MemoryStore()
        await put_export(source, "m", SMALL)
        taken = await take_export(source, "m", "x9", time.time())
        await put_export(store, "m", SMALL)
        assert (await put_export(store, "m", taken)).num_added == 1, "another export"
        [cells] = (await store.read("m", EPOCH)).epochs.values()
        assert [counts.pulls for counts in cells.values()] == [6]
        assert await forget(store, "m") == 1
        assert (await store.read("m", EPOCH)).epochs == {}
        assert (await put_export(store, "m", taken)).num_added == 1

    asyncio.run(test())


def test_another_model_is_refused_and_nothing_written() -> None:
    async def test() -> None:
        store = MemoryStore()
        with pytest.raises(ExportError, match="of target model 'm', expected 'other'"):
            await put_export(store, "other", SMALL)
        assert (await store.read("other", EPOCH)).epochs == {}

    asyncio.run(test())
