"""``banditserve serve`` as a user runs it: what it prints works, and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.processes import descendants, end_all, kill
from tests.conftest import StartSystem
from tests.system import ROOT, System, command_line, is_port_free

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.model]


def pasted(system: System, first: str, last: str) -> str:
    """Run the part of what was printed from one line to another in a shell, as it is."""
    lines = system.output_path.read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if first in line)
    end = next(number for number in range(begin, len(lines)) if lines[number].startswith(last))
    script = "\n".join(lines[begin : end + 1])
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def listening_addresses(pids: set[int]) -> set[str]:
    """Return the addresses on which these processes accept TCP connections."""
    done = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True)
    found = set()
    for line in done.stdout.splitlines():
        if any(f"pid={pid}," in line for pid in pids):
            found.add(line.split()[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:"))
    return found


def cli_status(system: System, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster", "status", "--url", system.base_url, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_printed_curl_line_answers(system: System) -> None:
    answer = json.loads(pasted(system, "curl ", "curl "))
    assert answer["choices"][0]["message"]["content"]


def test_the_printed_snippet_answers(system: System) -> None:
    assert pasted(system, " - <<'EOF'", "EOF").strip()


def test_everything_listens_on_loopback_only(system: System) -> None:
    addresses = listening_addresses(set(descendants(system.process.pid)))
    assert addresses == {"127.0.0.1"}


def scheduling_policies(pid: int) -> set[int]:
    """Return those of all threads of a process; some may end meanwhile."""
    policies = set()
    for thread_id in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):
            policies.add(os.sched_getscheduler(int(thread_id)))
    return policies


def test_whoever_serves_gives_way_to_the_engine(system: System) -> None:
    """The engine's thread and its team come first; everything else waits for a free core."""
    (verifier,) = system.pids("ServeReplica:banditserve:verifier")
    others = set(descendants(system.process.pid)) - {verifier}
    assert scheduling_policies(verifier) == {os.SCHED_BATCH, os.SCHED_OTHER}
    proxies = [pid for pid in others if "ProxyActor" in command_line(pid)]
    assert proxies
    for pid in proxies:
        assert scheduling_policies(pid) == {os.SCHED_BATCH}
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)


def test_status_says_that_all_is_up(system: System) -> None:
    done = cli_status(system)
    assert done.returncode == 0, done.stdout
    for part in ("verifier", "drafter prompt_lookup", "policy", "redis"):
        assert part in done.stdout
    assert json.loads(cli_status(system, "--json").stdout)["model"] == "smollm2"


def test_a_second_system_on_the_same_port_is_refused_and_harms_nothing(
    system: System, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "cluster", "serve", "--port", str(system.port)]
    done = subprocess.run(
        [*command, "--state-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "is in use" in done.stderr
    assert httpx.get(f"{system.base_url}/health").status_code == 200


def test_counts_outlive_redis_a_ctrl_c_and_the_end_of_all(
    start: StartSystem, tmp_path: Path
) -> None:
    first = start(folder=tmp_path)
    kill_private_redis(first)
    body = {"model": "smollm2", "prompt": "one two one two one two", "max_tokens": 24}
    answer = httpx.post(f"{first.base_url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    first.wait_until(lambda: policy_report(first)["batches_applied"] > 0, "counts in Redis")
    first.stop(signal.SIGINT)
    assert list((tmp_path / "state" / "logs").glob("ray-*/gcs_server.out"))

    second = start(folder=tmp_path)
    second.wait_until(lambda: policy_report(second)["cells"] > 0, "the counts of before")
    # Killed without a chance to stop anything, it leaves no process behind either. (Two agents of
    # Ray's first try for a minute to report the end of their node to what has ended with it.)
    started = {
        pid: since
        for pid, since in descendants(second.process.pid).items()
        if not command_line(pid).startswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))
    }
    assert started
    second.process.kill()
    second.process.wait()
    assert end_all(started, grace_s=30.0) == []
    assert is_port_free(second.port)


def kill_private_redis(system: System) -> None:
    """Kill it, and wait until it has been started again and the Policy uses it."""
    [pid] = system.pids("valkey-server") or system.pids("redis-server")
    kill(pid)
    system.wait_until(
        lambda: "The private Redis had ended; it runs again" in system.output_path.read_text(),
        "Redis to be started again",
    )
    system.wait_until(lambda: policy_report(system)["store_up"], "the Policy to find Redis")


def policy_report(system: System) -> dict[str, Any]:
    report: dict[str, Any] = system.status()["policy"]["report"]
    return report
