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
Url = Annotated[str, typer.Option(metavar="URL", help="The running system, as `serve` printed it.")]
