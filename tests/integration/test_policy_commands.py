"""``banditserve policy export | import | reset`` with a private Redis and a named one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.errors import ClusterError
from cluster.redis_server import PrivateRedis
from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.errors import ExportError
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.store import RedisStore
from tests.integration.redis_fixture import PASSWORD, RedisProcess

pytestmark = pytest.mark.redis

EPOCH = int(time.time() // 600) * 600
CELLS = {
    CellKey("n=a|r=chat|s=|c=0|l=0|t=0", "suffix:4", "version that is gone"): ArmCounts(pulls=7),
    CellKey("shadow", "suffix/score4/depth1/rank0", "1"): ArmCounts(pulls=9, accepted=2),
}


@pytest.fixture
def private(tmp_path: Path) -> Iterator[PrivateRedis]:
    server = PrivateRedis(tmp_path / "state", tmp_path / "redis.log")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def named(tmp_path: Path) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path / "named")
    process.start()
    yield process
    process.stop()


def policy(*args: object, **options: Any) -> str:
    """Run a command and return what it printed; errors are raised."""
    result = CliRunner().invoke(app, ["policy", *map(str, args)], **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def in_store(config: RedisConfig, work: Callable[[RedisStore], Any]) -> Any:
    async def run() -> Any:
        store = RedisStore(config)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def fill(config: RedisConfig) -> None:
    async def work(store: RedisStore) -> None:
        for number, epoch in enumerate((EPOCH, EPOCH - 6000), start=1):
            await store.apply(OutcomeBatch("r", "i", number, epoch, "smollm2", CELLS))

    in_store(config, work)


def learnt(config: RedisConfig) -> Any:
    pool = in_store(config, lambda store: store.read("smollm2", time.time()))
    return {epoch: dict(cells) for epoch, cells in pool.epochs.items()}


def test_from_one_cluster_to_another(
    private: PrivateRedis, named: RedisProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(RedisConfig(url=private.url))
    state, file = tmp_path / "state", tmp_path / "learnt.json"
    output = policy("export", file, "--state-dir", state)
    assert "4 cells of 2 epochs, model smollm2" in output
    monkeypatch.setenv("BANDITSERVE_REDIS_PASSWORD", PASSWORD)
    to = ("--redis-url", f"redis://127.0.0.1:{named.port}")
    assert "2 parts added" in policy("import", file, *to)
    assert learnt(named.config) == {EPOCH: CELLS, EPOCH - 6000: CELLS}
    assert "had been imported before" in policy("import", file, *to)
    assert learnt(named.config) == {EPOCH: CELLS, EPOCH - 6000: CELLS}
    policy("import", file, "--state-dir", state)
    assert learnt(RedisConfig(url=private.url))[EPOCH] == {k: v + v for k, v in CELLS.items()}


def test_what_cannot_be_imported_changes_nothing(private: PrivateRedis, tmp_path: Path) -> None:
    config = RedisConfig(url=private.url)
    fill(config)
    state, file = tmp_path / "state", tmp_path / "learnt.json"
    policy("export", file, "--state-dir", state)
    content = json.loads(file.read_text())
    for change, message in (
        ({"target_model": "other"}, "of target model 'other', expected 'smollm2'"),
        ({"version": 9}, "version 9; this version knows 1"),
        ({"cells": content["cells"][1:]}, "not those that were written"),
    ):
        file.write_text(json.dumps({**content, **change}))
        with pytest.raises(ExportError, match=message):
            policy("import", file, "--state-dir", state)
    with pytest.raises(ClusterError, match="cannot read"):
        policy("import", tmp_path / "missing.json", "--state-dir", state)
    assert learnt(config) == {EPOCH: CELLS, EPOCH - 6000: CELLS}


def test_reset_asks_and_forgets(private: PrivateRedis, tmp_path: Path) -> None:
    config = RedisConfig(url=private.url)
    fill(config)
    args = ("reset", "--state-dir", tmp_path / "state")
    assert "Aborted" in policy(*args, input="n\n")
    assert learnt(config) == {EPOCH: CELLS, EPOCH - 6000: CELLS}
    assert "generation 1 begins" in policy(*args, "--yes")
    assert learnt(config) == {}


def test_without_a_system_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no system runs with the state folder .*--redis-url"):
        policy("export", tmp_path / "x.json", "--state-dir", tmp_path)
    with pytest.raises(ClusterError, match=r"Redis at redis://127\.0\.0\.1:1: .*connect") as caught:
        policy("reset", "--yes", "--redis-url", f"redis://:{'pass' + 'word'}@127.0.0.1:1")
    assert "password" not in str(caught.value)
