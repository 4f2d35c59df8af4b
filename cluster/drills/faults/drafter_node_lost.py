"""A node with a drafter worker is lost, and another one comes."""

from __future__ import annotations

from dataclasses import replace

from cluster.drills.api import Drill, Outcome
from cluster.drills.stage import Stage


def run(stage: Stage) -> Outcome:
    """Kill all processes of a drafter's node; add another node once that has been noticed."""
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        lost = stage.cluster.lose("d1")
        fewer = stage.layout.drafter_nodes - 1
        noticed_s = stage.cluster.wait_until(
            lambda: len(stage.workers()) == fewer, "the loss to be noticed"
        )
        traffic.wait_for_replies(8)
        stage.cluster.add(replace(lost, name="d1"))
        recovery_s = stage.wait_until_whole()
        drafts = stage.num_drafts()
        traffic.wait_for_replies(len(stage.asked))
        drafts_after = stage.num_drafts() - drafts
    problems = traffic.problems()
    if drafts_after <= 0:
        problems.append("no drafts came after the node was replaced")
    figures = {
        **traffic.figures(),
        "loss seen after, s": round(noticed_s, 1),
        "time to recover with a new node, s": round(recovery_s, 1),
        "drafts afterwards": drafts_after,
    }
    return Outcome(figures, tuple(problems))


DRILL = Drill(
    "A drafter's node is lost: replies do not change, and a new node brings the worker back.",
    run,
)
