"""``banditserve policy import``: take over what another cluster has learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.options import ConfigFile, Model, RedisUrl, StateDir
from cluster.config import load_config
from cluster.errors import ConfigError


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File that `banditserve policy export` wrote.")
    ],
    config: ConfigFile = None,
    model: Model = None,
    redis_url: RedisUrl = None,
    state_dir: StateDir = None,
) -> None:
    """Add what another cluster has learnt of the same model to what is known here.

    A file counts once however often it is imported. Counts keep their age and the version of their
    drafter; those older than is kept are left out. A running system uses them within a second.
    """
    system = load_config(config, {"model": model, "redis.url": redis_url, "state_dir": state_dir})
    from cluster.pool_access import with_store  # these import Redis, which takes a moment
    from policy_service.exports import parse_export
    from policy_service.transfer import put_export

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    taken = parse_export(text)
    done = with_store(system, lambda store, name: put_export(store, name, taken))
    if done.num_known and not done.num_added:
        print(f"{file} had been imported before; nothing was changed")
    else:
        print(f"{file}: {done.num_added} parts added, {done.num_known} were known")
    if done.num_late:
        print(f"{done.num_late} parts are older than is kept and were left out")
