"""The Redis of the counts is killed, stays away for a while and comes back with its data."""

from __future__ import annotations

import time

from cluster.drills.api import Drill, Outcome
from cluster.drills.counting import Counting
from cluster.drills.stage import Stage

AWAY_S = 10.0


def run(stage: Stage) -> Outcome:
    """Kill Redis, start it again; afterwards it must hold every round exactly once."""
    counting = Counting(stage)
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        stage.redis.kill()
        away_since = time.monotonic()
        stage.cluster.wait_until(lambda: not stage.policy()["store_up"], "the loss to be noticed")
        traffic.wait_for_replies(8)
        time.sleep(max(0.0, AWAY_S - (time.monotonic() - away_since)))
        stage.redis.restart()
        recovery_s = stage.wait_until_whole()
        traffic.wait_for_replies(len(stage.asked))
    counted = counting.end(traffic)
    figures = {
        **traffic.figures(),
        **counted.figures,
        "time to recover after its return, s": round(recovery_s, 1),
    }
    return Outcome(figures, (*traffic.problems(), *counted.problems))


DRILL = Drill(
    "Redis is killed and comes back: replies do not change, every round is counted exactly once.",
    run,
)
