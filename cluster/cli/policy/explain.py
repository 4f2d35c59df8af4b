"""``banditserve policy explain``: why a request's rounds were as they were."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer
from rich.console import Console
from rich.table import Table

from cluster.cli.options import Url
from cluster.errors import ExplanationError, NotReadyError
from cluster.explained_rounds import ARM_HEADINGS, ROUND_HEADINGS, arm_rows, round_rows

_TIMEOUT_S = 10.0
_PIPE_WIDTH = 180
_TEXT_COLUMNS = frozenset({"arm", "why", "best estimates", "draft"})


def explain(
    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="The X-Request-Id of a response.")
    ],
    url: Url = "http://127.0.0.1:8000",
    log: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Look it up in decision logs instead: files, or folders of them.",
            show_default="none: ask the running system",
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="BANDITSERVE_API_KEY",
            metavar="KEY",
            help="Key that the request was sent with, if the system wants one.",
            show_default="none",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all that is known, as JSON.")
    ] = False,
) -> None:
    """Show every round of a request: its arm, why, with what chance, and what came of it.

    A running system knows the latest requests; policy.decision_log says how many. A decision log
    knows those that it sampled.
    """
    answer = read(log, request) if log else ask(url, request, api_key)
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    for reply in answer["choices"]:
        title = f"request {request}, choice {reply['index']}, at {reply['verifier']}"
        _print(console, title, ROUND_HEADINGS, round_rows(reply))
        _print(console, "", ARM_HEADINGS, arm_rows(reply))


def ask(url: str, request: str, api_key: str | None) -> dict[str, Any]:
    """Return what a running system knows of a request.

    Raises:
        NotReadyError: If it does not answer.
        ExplanationError: If it refuses, or knows nothing of the request.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    address = f"{url.rstrip('/')}/v1/requests/{quote(request, safe='')}/explain"
    try:
        answer = httpx.get(address, headers=headers, timeout=_TIMEOUT_S, trust_env=False)
        body = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotReadyError(f"no answer from {url}: {reason}") from error
    if not isinstance(body, dict):
        raise NotReadyError(f"no answer from {url}: expected an object, found {body!r}")
    if answer.status_code != httpx.codes.OK:
        error_body = body.get("error")
        message = error_body.get("message") if isinstance(error_body, dict) else None
        raise ExplanationError(str(message or f"{url} answered with {answer.status_code}"))
    return body


def read(paths: Sequence[Path], request: str) -> dict[str, Any]:
    """Return what decision logs know of a request.

    Raises:
        DecisionLogError: If there is no log, or it cannot be read.
        ExplanationError: If no round of the request is in it.
    """
    from policy_service.decision_log.reader import read_log  # only here, as is the next: numpy
    from replicas.round_reports import explained_replies

    found = read_log(paths, lambda record: record.request_id == request)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    replies = [
        entry
        for reply in found.replies
        for entry in explained_replies(reply.rounds, reply.header.replica)
    ]
    if not replies:
        raise ExplanationError(
            f"no round of request {request!r} is in the log; it holds the share of requests that "
            "policy.decision_log.share says, and the oldest files are deleted"
        )
    replies.sort(key=lambda entry: (entry["index"], entry["sequence"]))
    return {"id": request, "object": "request.explanation", "choices": replies}


def _print(
    console: Console, title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    table = Table(title=title or None, title_justify="left")
    for heading in headings:
        is_text = heading in _TEXT_COLUMNS
        table.add_column(
            heading,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
        )
    for row in rows:
        table.add_row(*row)
    console.print(table)
