"""The Policy is killed while rounds are being counted."""

from __future__ import annotations

from cluster.drills.api import Drill, Outcome
from cluster.drills.counting import Counting
from cluster.drills.stage import Stage, kill


def run(stage: Stage) -> Outcome:
    """Kill the Policy; afterwards Redis must hold every round exactly once."""
    counting = Counting(stage)
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        victim = stage.policy()["pid"]
        kill(victim)
        recovery_s = stage.cluster.wait_until(
            lambda: stage.policy()["pid"] != victim and stage.is_whole(), "the Policy to be back"
        )
        traffic.wait_for_replies(len(stage.asked))
    counted = counting.end(traffic)
    figures = {
        **traffic.figures(),
        **counted.figures,
        "time to recover, s": round(recovery_s, 1),
    }
    return Outcome(figures, (*traffic.problems(), *counted.problems))


DRILL = Drill(
    "The Policy is killed: replies do not change, and every round is counted exactly once.",
    run,
)
