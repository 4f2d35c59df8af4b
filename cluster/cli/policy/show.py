"""``banditserve policy show``: what was learnt, by context and arm."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

from cluster.cli.options import ApiKey, Url
from cluster.errors import NotReadyError
from cluster.learnt_table import HEADINGS, Learnt, num_cells, rows

_TIMEOUT_S = 15.0
_PIPE_WIDTH = 180


def show(
    url: Url = "http://127.0.0.1:8000",
    api_key: ApiKey = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Only contexts whose name has this in it.", show_default="all"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all counters, as JSON.")] = False,
) -> None:
    """Show what the running system has learnt of every arm, in every context.

    Where keys are needed, contexts of other tenants are not shown.
    """
    learnt = ask(url, api_key)
    if as_json:
        print(json.dumps(learnt, indent=2))
        return
    table = Table(
        title=f"model {learnt.get('target_model', '?')}, generation {learnt.get('generation', 0)}",
        title_justify="left",
    )
    for heading in HEADINGS:
        is_text = heading in HEADINGS[:2]
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    for row in rows(learnt, context or ""):
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    console.print(table)
    console.print(f"{num_cells(learnt)} cells of conditional acceptance; --json shows them")


def ask(url: str, api_key: str | None) -> Learnt:
    """Return what a running system has learnt.

    Raises:
        NotReadyError: If it does not answer, or refuses.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        answer = httpx.get(
            f"{url.rstrip('/')}/policy", headers=headers, timeout=_TIMEOUT_S, trust_env=False
        )
        answer.raise_for_status()
        learnt: Any = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotReadyError(f"no policy from {url}: {reason}") from error
    if not isinstance(learnt, dict):
        raise NotReadyError(f"no policy from {url}: expected an object, found {learnt!r}")
    return learnt
