"""``banditserve policy reset``: forget what was learnt."""

from __future__ import annotations

from typing import Annotated

import typer

from cluster.cli.options import ConfigFile, Model, RedisUrl, StateDir
from cluster.config import load_config


def reset(
    config: ConfigFile = None,
    model: Model = None,
    redis_url: RedisUrl = None,
    state_dir: StateDir = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget all that was learnt of a model, at once.

    A running system starts anew within a second; what its replicas had counted before and not yet
    sent is forgotten too. `banditserve policy export` keeps a copy.
    """
    system = load_config(config, {"model": model, "redis.url": redis_url, "state_dir": state_dir})
    from cluster.pool_access import with_store  # these import Redis, which takes a moment
    from models.store import served_name
    from policy_service.transfer import forget

    name = served_name(system.model)
    if not yes:
        typer.confirm(f"Forget all that was learnt of {name}?", abort=True)
    generation = with_store(system, forget)
    print(f"{name}: all that was learnt is forgotten (generation {generation} begins)")
