"""``banditserve serve``: start everything and serve until told to stop."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.options import CacheDir, ConfigFile, Model
from cluster.config import SystemConfig, load_config
from cluster.progress import Reporter


def serve(
    config: ConfigFile = None,
    model: Model = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address that HTTP listens on; 0.0.0.0 lets other machines in.",
            show_default="127.0.0.1",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Port that HTTP listens on.", show_default="8000"),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(metavar="N", help="Verifiers, each with the model.", show_default="1"),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Ray to join: auto or host:port. It is left running.",
            show_default="none: a private Ray, stopped at the end",
        ),
    ] = None,
    redis_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Redis for the counts, as redis.url in the configuration; a password is better "
            "put into the environment as BANDITSERVE_REDIS_PASSWORD. It is left running.",
            show_default="none: a private one that keeps its data in the state folder",
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where a private Redis keeps what was learnt, and where logs go.",
            show_default="$XDG_STATE_HOME/banditserve or ~/.local/state/banditserve",
        ),
    ] = None,
    cache_dir: CacheDir = None,
) -> None:
    """Fetch the model, start Redis and Ray where none are given, and serve until Ctrl-C.

    Exit code 0 after Ctrl-C or SIGTERM, 2 with one line if it cannot start.
    """
    options = {
        "model": model,
        "host": host,
        "port": port,
        "verifier.num_replicas": replicas,
        "ray.address": address,
        "redis.url": redis_url,
        "state_dir": state_dir,
        "cache_dir": cache_dir,
    }
    system = load_config(config, options)
    from cluster.launcher import Launcher  # only here: it would make every command wait

    reporter = Reporter(os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1))
    errors = os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1)
    _send_libraries_to_log(system)
    try:
        Launcher(system, reporter).run()
    finally:
        # Errors are for the user's eyes again.
        os.dup2(errors.fileno(), sys.stderr.fileno())


def _send_libraries_to_log(config: SystemConfig) -> None:
    """Let all that Ray and others print go to a file; the reporter has a stream of its own."""
    log_dir = config.state_dir / "logs"
    log_dir.mkdir(parents=True, exist_ok=True)
    log = os.open(log_dir / "serve.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    os.close(log)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line for each look at /health
