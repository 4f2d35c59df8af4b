"""A Verifier's node is drained, as Kubernetes does before it takes a machine away."""

from __future__ import annotations

from cluster.drills.api import Drill, Outcome
from cluster.drills.stage import Stage
from cluster.nodes.application import worker_node
from cluster.nodes.known import drain_node

NOTICE_S = 240.0


def run(stage: Stage) -> Outcome:
    """Add a node, drain another, and take that away once its Verifier has gone."""
    cluster = stage.cluster
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        spare = f"v{stage.layout.verifier_nodes + 1}"
        cluster.add(worker_node(spare, "verifier"))
        old = cluster.nodes["v1"]
        drain_node(cluster.address, "v1", NOTICE_S)
        recovery_s = cluster.wait_until(
            lambda: bool(cluster.nodes[spare].pids(":verifier")) and stage.is_whole(),
            "a Verifier on the new node",
            NOTICE_S,
        )
        emptied_s = recovery_s + cluster.wait_until(
            lambda: not old.pids(":verifier"), "the drained node to be empty", NOTICE_S
        )
        cluster.lose("v1")
        traffic.wait_for_replies(len(stage.asked))
    problems = traffic.problems()
    moved = sum(record.attempts > 1 for record in traffic.records)
    if moved:
        problems.append(f"{moved} replies were cut off on the drained node and had to be moved")
    figures = {
        **traffic.figures(),
        "a Verifier in its place after, s": round(recovery_s, 1),
        "node empty after, s": round(emptied_s, 1),
    }
    return Outcome(figures, tuple(problems))


DRILL = Drill(
    "A Verifier's node is drained: its streams end there, and another node takes over.",
    run,
)
