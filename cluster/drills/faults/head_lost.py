"""Ray's head is lost and comes back; its tables are in a Redis."""

from __future__ import annotations

import time

from cluster.drills.api import Drill, Layout, Outcome
from cluster.drills.stage import Stage, kill

AWAY_S = 10.0


def run(stage: Stage) -> Outcome:
    """Kill the head's node; users go on through a worker's proxy; start it again elsewhere.

    Afterwards the cluster must be able to repair itself again: a Verifier is killed and replaced.
    """
    cluster = stage.cluster
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        before = traffic.num_ended()
        cluster.lose("head")
        time.sleep(AWAY_S)
        meanwhile = traffic.num_ended() - before
        started = time.monotonic()
        cluster.start_head()
        stage.wait_until_whole()
        traffic.wait_for_replies(8)
        victim = stage.verifiers()[0]["pid"]
        kill(victim)
        cluster.wait_until(
            lambda: stage.is_whole() and victim not in [one["pid"] for one in stage.verifiers()],
            "the returned head to replace a Verifier",
            240.0,
        )
        recovery_s = time.monotonic() - started
        traffic.wait_for_replies(len(stage.asked))
    problems = traffic.problems()
    if not meanwhile:
        problems.append("no reply ended while the head was away")
    figures = {
        **traffic.figures(),
        "replies that ended without a head": meanwhile,
        "a Verifier killed later was replaced after its return, s": round(recovery_s, 1),
    }
    return Outcome(figures, tuple(problems))


DRILL = Drill(
    "The head is lost: requests go on without it, and a new head takes the cluster over.",
    run,
    Layout(gcs_on_redis=True),
)
