"""``banditserve drill``: harm a system of several nodes on this machine, and see that it holds."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.options import CacheDir
from cluster.errors import DrillError
from cluster.progress import Reporter


def drill(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="Drills to do, one after the other; all: every one."
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Say what drills there are.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Target model to serve meanwhile.",
            show_default="none: a tiny one of random weights",
        ),
    ] = None,
    cache_dir: CacheDir = None,
) -> None:
    """Start nodes, Redis and the application here, do harm while users ask, and judge.

    Exit code 0 if all promises held, 1 if one did not, 2 if a drill cannot be done.
    """
    from cluster.drills import catalogue  # only here: they would make every command wait

    if list_:
        for name in catalogue.names():
            print(f"{name:<20}{catalogue.drill(name).about}")
        return
    wanted = catalogue.by_layout(catalogue.names()) if names == ["all"] else names or []
    if not wanted:
        raise DrillError("expected the name of a drill, or all; see banditserve drill --list")
    drills = {name: catalogue.drill(name) for name in wanted}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is stopped then
    reporter = Reporter(sys.stdout)
    from cluster.drills.conduct import Stages, conduct, served_model

    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        path = served_model(model, cache_dir, Path(folder), reporter)
        with Stages(path, reporter) as stages:
            outcomes = [conduct(name, drills[name], stages, reporter) for name in wanted]
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)
