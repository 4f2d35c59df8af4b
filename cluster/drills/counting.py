"""Whether Redis gained exactly the rounds that replies tell of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from cluster.drills.api import Outcome
from cluster.drills.stage import Stage
from cluster.drills.traffic import Traffic
from cluster.loadtest.checks import verdicts
from cluster.loadtest.records import LoadResult
from cluster.loadtest.scenario import Checks
from cluster.loadtest.stored import gained


class Counting:
    """Looks into Redis before and after traffic. Make it before the traffic begins."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._before = asyncio.run(self._stage.stored())

    def end(self, *traffics: Traffic) -> Outcome:
        """Look again, once all traffic has ended, and compare."""
        after = asyncio.run(self._stage.stored())
        records = [record for traffic in traffics for record in traffic.records]
        result = LoadResult(records, [], 0.0)
        verdict = verdicts(
            Checks(max_failed=len(records), counts_add_up=True),
            result,
            {},
            gained(self._before, after),
        )[-1]
        figures = {"rounds told": sum(tally.rounds for tally in result.arms().values())}
        problems: Iterable[str] = () if verdict.passed else (f"{verdict.name}: {verdict.found}",)
        return Outcome(figures, tuple(problems))
