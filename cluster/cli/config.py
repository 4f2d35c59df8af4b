"""``banditserve config``: the configuration that is in effect."""

from __future__ import annotations

import typer

from cluster.cli.options import ConfigFile
from cluster.config import load_config
from cluster.config_text import config_text

app = typer.Typer(help="The configuration.", no_args_is_help=True)


@app.command()
def show(config: ConfigFile = None) -> None:
    """Print the whole configuration in effect as YAML, every key explained.

    The output is a configuration file: save it, edit it, and give it to `serve --config`.
    """
    print(config_text(load_config(config)), end="")
