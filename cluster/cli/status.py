"""``banditserve status``: what is up, what is away, and how often it was done without."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

from cluster.cli.options import Url
from cluster.errors import NotReadyError
from cluster.status_table import Row, is_all_up, rows

_TIMEOUT_S = 10.0


def status(
    url: Url = "http://127.0.0.1:8000",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="BANDITSERVE_API_KEY",
            metavar="KEY",
            help="Key that the system wants, if it wants one.",
            show_default="none",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything that the system says, as JSON.")
    ] = False,
) -> None:
    """Say how a running system is.

    Exit code 0 if all is up, 1 if something is away, 2 if the system does not answer.
    """
    answer = ask(url, api_key)
    found = rows(answer, time.time())
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print_table(answer, found)
    if not is_all_up(found):
        raise typer.Exit(1)


def ask(url: str, api_key: str | None) -> dict[str, Any]:
    """Return what a system says of itself.

    Raises:
        NotReadyError: If it does not answer, or not with its status.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        answer = httpx.get(
            f"{url.rstrip('/')}/status", headers=headers, timeout=_TIMEOUT_S, trust_env=False
        )
        answer.raise_for_status()
        status = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotReadyError(f"no status from {url}: {reason}") from error
    if not isinstance(status, dict):
        raise NotReadyError(f"no status from {url}: expected an object, found {status!r}")
    return status


def print_table(answer: dict[str, Any], found: list[Row]) -> None:
    """Print the rows."""
    table = Table(title=f"model {answer.get('model', '?')}", title_justify="left")
    for heading in ("part", "name", "state", "away for"):
        table.add_column(heading, no_wrap=True)  # what is searched for stays in one piece
    table.add_column("done without", justify="right", min_width=4)
    table.add_column("detail", overflow="fold")
    for row in found:
        table.add_row(
            row.part,
            row.name,
            _STATES[row.is_up],
            "" if row.away_s is None else f"{row.away_s:.0f} s",
            str(row.num_without),
            row.detail,
        )
    Console().print(table)


_STATES = {True: "[green]up[/]", False: "[red]away[/]", None: "[yellow]unknown[/]"}
