"""``banditserve loadtest``: put a scenario's load on a system and report how it went."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.options import ConfigFile, Model
from cluster.errors import ScenarioError
from cluster.progress import Reporter


def loadtest(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A shipped scenario's name, or a YAML file.")
    ],
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="A running system, as `serve` printed it.")
    ] = None,
    start: Annotated[
        bool, typer.Option("--start", help="Start a system for it, and stop it afterwards.")
    ] = False,
    local_nodes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Start it on a head and N nodes on this machine, half of them for drafters.",
            show_default="none",
        ),
    ] = None,
    config: ConfigFile = None,
    model: Model = None,
    redis_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Redis of the running system, to compare its counts with the replies.",
            show_default="none: counts are not compared",
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="BANDITSERVE_API_KEY",
            metavar="KEY",
            help="Key that the running system wants, if it wants one.",
            show_default="none",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Prompts to use: a .jsonl file or a folder of them.",
            show_default="the scenario's, or those shipped",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where report.json and report.html go.",
            show_default="loadtest-NAME-TIME here",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of the arrivals.", show_default="the scenario's"),
    ] = None,
    time_factor: Annotated[
        float, typer.Option(metavar="X", min=0.001, help="Multiplies all durations.")
    ] = 1.0,
    rate_factor: Annotated[
        float, typer.Option(metavar="X", min=0.001, help="Multiplies all rates.")
    ] = 1.0,
) -> None:
    """Send requests as a scenario says, whatever becomes of them, and write a report with plots.

    Exit code 0 if all that the scenario demands holds, 1 if not, 2 if it cannot be run.
    """
    from cluster.loadtest import report as reports  # only here: they would make every command wait
    from cluster.loadtest.scenario import load_scenario
    from cluster.loadtest.session import Target, run_scenario

    if (url is not None) + start + (local_nodes is not None) != 1:
        raise ScenarioError("expected one of --url URL, a running system, --start, --local-nodes N")
    found, path = load_scenario(scenario)
    found = found.scaled(time_factor, rate_factor).with_prompts(prompts)
    target = Target(url, api_key, redis_url, config, model, local_nodes or 0)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is stopped then
    reporter = Reporter(sys.stdout)
    seed = found.seed if seed is None else seed
    report = asyncio.run(run_scenario(found, path, target, seed, reporter))
    folder = out or Path(f"loadtest-{found.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    _, html_path = reports.write(report, folder)
    for line in reports.lines(report):
        reporter.say(line)
    reporter.say(f"Report: {html_path}")
    if not report.passed:
        raise typer.Exit(1)
