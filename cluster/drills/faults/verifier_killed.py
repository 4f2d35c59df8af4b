"""A Verifier is killed in the middle of its streams."""

from __future__ import annotations

from typing import Any

from cluster.drills.api import Drill, Outcome
from cluster.drills.stage import Stage, kill


def run(stage: Stage) -> Outcome:
    """Kill the busiest Verifier while all users' replies are under way."""
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        victim = max(stage.verifiers(), key=_num_running)
        kill(victim["pid"])

        def is_replaced() -> bool:
            pids = [one["pid"] for one in stage.verifiers()]
            return len(pids) == stage.layout.verifier_nodes and victim["pid"] not in pids

        recovery_s = stage.cluster.wait_until(is_replaced, "the Verifier to be replaced", 240.0)
        traffic.wait_for_replies(len(stage.asked))
    problems = traffic.problems()
    if not traffic.figures()["given to another Verifier"]:
        problems.append("no reply was moved: the kill hit no stream")
    figures = {**traffic.figures(), "time to recover, s": round(recovery_s, 1)}
    return Outcome(figures, tuple(problems))


def _num_running(report: dict[str, Any]) -> int:
    return int(report["num_running"])


DRILL = Drill(
    "A Verifier is killed mid-stream: its streams go on, identical, on another one.",
    run,
)
