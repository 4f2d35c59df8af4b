"""The configuration is changed in place, as with a changed RayService."""

from __future__ import annotations

from cluster.drills.api import Drill, Outcome
from cluster.drills.stage import Stage

NEW_GAMMAS = (3, 5)


def run(stage: Stage) -> Outcome:
    """Deploy other speculation lengths while users ask, and wait until they are in use."""
    old = {one["pid"] for one in stage.verifiers()}
    with stage.traffic() as traffic:
        traffic.wait_until_mid_stream()
        stage.args = {**stage.args, "policy": {"gammas": NEW_GAMMAS}}
        stage.cluster.deploy(stage.args)

        def is_changed() -> bool:
            return stage.is_whole() and old.isdisjoint(one["pid"] for one in stage.verifiers())

        recovery_s = stage.cluster.wait_until(is_changed, "all Verifiers to be new", 240.0)
        changed_s = traffic.now_s()
        traffic.wait_for_replies(len(stage.asked))
    arms = {
        arm for record in traffic.records if record.sent_s > changed_s for arm in record.arms
    } - {"none"}
    lengths = {int(arm.rpartition(":")[2]) for arm in arms}
    problems = traffic.problems()
    if not lengths or not lengths <= set(NEW_GAMMAS):
        problems.append(f"expected drafts of {NEW_GAMMAS}, found {sorted(lengths)}")
    figures = {
        **traffic.figures(),
        "arms afterwards": ", ".join(sorted(arms)),
        "all new after, s": round(recovery_s, 1),
    }
    return Outcome(figures, tuple(problems))


DRILL = Drill(
    "The configuration changes in place: Verifiers are replaced one by one, no request fails.",
    run,
)
