from __future__ import annotations

from pathlib import Path

import torch

from models.memory import available_bytes, container_bytes, free_bytes


def test_file_cache_counts_as_available(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 4000 kB\nMemFree: 10 kB\nMemAvailable: 3000 kB\n")
    assert available_bytes(meminfo) == 3000 * 1024
    assert available_bytes(tmp_path / "nothing") is None


def test_a_container_may_take_what_its_limit_leaves(tmp_path: Path) -> None:
    assert container_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert container_bytes(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert container_bytes(tmp_path) is None


def test_this_machine_has_memory() -> None:
    assert free_bytes(torch.device("cpu")) > 2**20
