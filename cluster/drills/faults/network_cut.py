"""Verifiers can no longer reach any drafter for a while.

All processes of the drafters' nodes are made to stand still (SIGSTOP), for less time than Ray takes
to give a node up. To the rest this is a network that swallows everything: connections neither
answer nor close, and what was on its way arrives late, once it is over.
"""

from __future__ import annotations

import time

from cluster.drills.api import Drill, Outcome
from cluster.drills.stage import Stage

CUT_S = 10.0
MAX_SILENCE_S = 6.0
"""Far above a drafter's deadline and what a busy machine adds, less than the length of the cut."""


def run(stage: Stage) -> Outcome:
    """Cut all drafters off, and let them back."""
    nodes = [node for name, node in stage.cluster.nodes.items() if name.startswith("d")]
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        without = stage.done_without()
        ended = traffic.num_ended()
        for node in nodes:
            node.pause()
        try:
            time.sleep(CUT_S)
            during = traffic.num_ended() - ended
        finally:
            for node in nodes:
                node.resume()
        recovery_s = stage.wait_until_whole()
        drafts = stage.num_drafts()
        traffic.wait_for_replies(len(stage.asked))
        without = stage.done_without() - without
        drafts = stage.num_drafts() - drafts
    figures = {
        **traffic.figures(),
        "replies that ended during the cut": during,
        "rounds done without a drafter": without,
        "drafts afterwards": drafts,
        "time to recover after the cut, s": round(recovery_s, 1),
    }
    problems = traffic.problems()
    if not without:
        problems.append("no round was done without a drafter: the cut cut nothing")
    if not drafts:
        problems.append("no drafts came after the cut")
    if traffic.longest_silence_s() > MAX_SILENCE_S:
        problems.append(f"a stream was silent for more than {MAX_SILENCE_S:g} s")
    return Outcome(figures, tuple(problems))


DRILL = Drill(
    "The network between Verifiers and drafters is cut: streams go on, identical, undrafted.",
    run,
)
