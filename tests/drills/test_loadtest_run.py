"""``banditserve loadtest``: on a system of its own and on nodes of its own, with a real report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cluster.drills.small_model import save_small_model
from tests.system import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.redis]


@pytest.mark.parametrize("where", [["--start"], ["--local-nodes", "2"]], ids=lambda args: args[0])
def test_a_load_test_runs_and_its_counts_add_up(where: list[str], tmp_path: Path) -> None:
    labels = {"role": "verifier"}, {"role": "drafter"}
    on_nodes = where[0] == "--local-nodes"
    config = {
        "model": str(save_small_model(tmp_path)),
        "verifier": {"label_selector": labels[0] if on_nodes else {}},
        "drafters": {
            "prompt_lookup": {
                "num_cpus": 0.7,
                "host_num_cpus": 0.3,
                "label_selector": labels[1] if on_nodes else {},
            }
        },
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "cluster", "loadtest", "smoke", *where]
    command += ["--config", str(path), "--out", str(tmp_path / "out"), "--rate-factor", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [check["passed"] for check in report["checks"]] == [True, True]
    assert len(report["requests"]) > 20
    assert all(record["tokens"] for record in report["requests"])
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


def test_a_system_that_is_not_there_is_told_with_one_line() -> None:
    command = [sys.executable, "-m", "cluster", "loadtest", "smoke", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no system answers at http://127.0.0.1:1")
    assert len(done.stderr.splitlines()) == 1
