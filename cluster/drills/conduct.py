"""Do drills from beginning to end and say how they went."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from cluster.config import default_cache_dir
from cluster.drills.api import Drill, Layout, Outcome
from cluster.drills.small_model import save_small_model
from cluster.drills.stage import Stage, open_stage
from cluster.errors import ClusterError
from cluster.progress import Reporter
from models.store import resolve_model


def served_model(
    name: str | None, cache_dir: Path | None, folder: Path, reporter: Reporter
) -> Path:
    """Return the folder of the model to serve; a tiny one is made in ``folder`` if none is named.

    Raises:
        ModelError: If the one that was named cannot be had.
    """
    if name is None:
        return save_small_model(folder)
    return resolve_model(name, (cache_dir or default_cache_dir()).expanduser(), reporter).path


class Stages:
    """Starts systems for drills, and uses one again while it is whole. A context manager.

    Args:
        model: Folder of the model to serve.
        reporter: Told what is done.
    """

    def __init__(self, model: Path, reporter: Reporter) -> None:
        self._model = model
        self._reporter = reporter
        self._stack = ExitStack()
        self._stage: Stage | None = None

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the system that there is."""
        self.close()

    def get(self, layout: Layout) -> Stage:
        """Return a whole system of a layout.

        Raises:
            ClusterError: If it does not start.
        """
        if self._stage is None or self._stage.layout != layout:
            self.close()
            with self._reporter.task("Starting nodes and the application") as task:
                self._stage = self._stack.enter_context(open_stage(layout, self._model, task.note))
        return self._stage

    def close(self) -> None:
        """End the system that there is: another one is started for the next drill."""
        self._stage = None
        self._stack.close()


def conduct(name: str, drill: Drill, stages: Stages, reporter: Reporter) -> Outcome:
    """Do a drill; print figures and verdict.

    Raises:
        ClusterError: If the system does not start.
    """
    reporter.say(f"{name}: {drill.about}")
    stage = stages.get(drill.layout)
    with reporter.task("Drill"):
        outcome = _run(drill, stage)
    if not outcome.passed:
        stages.close()  # who knows what is left of it
    for key, value in outcome.figures.items():
        reporter.say(f"  {key + ':':<60}{value}")
    for problem in outcome.problems:
        reporter.say(f"  NOT AS PROMISED: {problem}")
    reporter.say(f"{name}: {'passed' if outcome.passed else 'FAILED'}")
    return outcome


def _run(drill: Drill, stage: Stage) -> Outcome:
    """Do it; a system that does not recover in time is a finding, not an accident."""
    try:
        outcome = drill.run(stage)
        stage.wait_until_whole()
    except (ClusterError, httpx.HTTPError, LookupError) as error:
        return Outcome({}, (f"{type(error).__name__}: {error}",))
    return outcome
