"""Two clusters, blue and green, serve at the same time with one Redis of counts, then one ends."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cluster.drills.api import Drill, Layout, Outcome
from cluster.drills.counting import Counting
from cluster.drills.stage import Stage, start
from cluster.drills.traffic import Traffic
from cluster.nodes.local_cluster import LocalCluster


def run(stage: Stage) -> Outcome:
    """Start green beside blue, let users ask both, take blue's users away, and go on with green."""
    counting = Counting(stage)
    with tempfile.TemporaryDirectory(prefix="drill-") as folder, LocalCluster() as green:
        args = {**stage.args, "state_dir": str(Path(folder) / "state")}
        with stage.traffic(users=2) as of_blue:
            start(green, stage.layout, args, stage.note)
            with Traffic(green.url, stage.asked, 2, stage.expected) as of_both:
                of_blue.wait_for_replies(len(stage.asked))
                of_both.wait_for_replies(len(stage.asked))
                versions = _snapshot_versions(stage.cluster), _snapshot_versions(green)
        with Traffic(green.url, stage.asked, 2, stage.expected) as of_green:
            of_green.wait_for_replies(len(stage.asked))
        counted = counting.end(of_blue, of_both, of_green)
    every = (of_blue, of_both, of_green)
    problems = [problem for traffic in every for problem in traffic.problems()]
    if not all(versions):
        problems.append(f"expected both to have counts from Redis, found snapshots {versions}")
    figures = {
        "sent to blue": len(of_blue.records),
        "sent to green": len(of_both.records) + len(of_green.records),
        "failed": sum(len(traffic.failed()) for traffic in every),
        "different text": sum(len(traffic.different()) for traffic in every),
        **counted.figures,
    }
    return Outcome(figures, (*problems, *counted.problems))


def _snapshot_versions(cluster: LocalCluster) -> int:
    return int(cluster.status()["policy"]["report"]["snapshot_version"])


DRILL = Drill(
    "Two clusters share one Redis during a rollout: no round is lost or counted twice.",
    run,
    Layout(verifier_nodes=1, drafter_nodes=1),
)
