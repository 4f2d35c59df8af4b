"""``banditserve policy export``: what was learnt, as a file for another cluster."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.options import ConfigFile, Model, RedisUrl, StateDir
from cluster.config import load_config
from cluster.errors import ConfigError


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")],
    config: ConfigFile = None,
    model: Model = None,
    redis_url: RedisUrl = None,
    state_dir: StateDir = None,
) -> None:
    """Write all that was learnt of a model to a file, for `banditserve policy import`.

    Reads the Redis of the system, which may be running. Nothing is changed there.
    """
    system = load_config(config, {"model": model, "redis.url": redis_url, "state_dir": state_dir})
    from cluster.pool_access import with_store  # these import Redis, which takes a moment
    from policy_service.exports import export_text
    from policy_service.transfer import take_export

    taken = with_store(
        system, lambda store, name: take_export(store, name, secrets.token_hex(16), time.time())
    )
    _write(file, export_text(taken))
    num_cells = sum(map(len, taken.epochs.values()))
    print(f"{file}: {num_cells} cells of {len(taken.epochs)} epochs, model {taken.target_model}")


def _write(path: Path, text: str) -> None:
    """Write a file, all of it or nothing."""
    stage = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        stage.write_text(text, encoding="utf-8")
        stage.replace(path)
    except OSError as error:
        stage.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
