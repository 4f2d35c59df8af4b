"""Options that several commands share, each with its meaning and default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="YAML configuration; options given here go before it.",
        show_default="none: the defaults of `banditserve config show`",
    ),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Where fetched models are kept.",
        show_default="$BANDITSERVE_CACHE or ~/.cache/banditserve",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="smollm2, a name on the Hugging Face hub, or a local folder.",
        show_default="smollm2",
    ),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="BANDITSERVE_REDIS_URL",
        help="The Redis that keeps the counts; a password is better put into the environment as "
        "BANDITSERVE_REDIS_PASSWORD, or into a file that the configuration names.",
        show_default="that of the configuration, else the private one of the state folder",
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="State folder of the system, where its private Redis is.",
        show_default="$XDG_STATE_HOME/banditserve or ~/.local/state/banditserve",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        envvar="BANDITSERVE_API_KEY",
        metavar="KEY",
        help="Key that the system wants, if it wants one.",
        show_default="none",
    ),
]
Url = Annotated[str, typer.Option(metavar="URL", help="The running system, as `serve` printed it.")]
