"""``banditserve models``: what is in the cache, and fetching before it is needed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cluster.cli.options import CacheDir
from cluster.config import default_cache_dir
from cluster.progress import Reporter
from models.progress import num_bytes_under
from models.store import DEFAULT_MODEL, list_models, resolve_model

app = typer.Typer(help="Models on this machine.", no_args_is_help=True)


@app.command("list")
def list_(cache_dir: CacheDir = None) -> None:
    """List the models in the cache."""
    folder = (cache_dir or default_cache_dir()).expanduser()
    table = Table("model", "size", "from", "folder")
    for model in list_models(folder):
        size = f"{num_bytes_under(model.path) / 1e6:.0f} MB"
        table.add_row(model.name, size, model.source, str(model.path))
    if table.row_count:
        Console().print(table)
    else:
        print(f"No models in {folder}; `banditserve models fetch` gets {DEFAULT_MODEL}.")


@app.command()
def fetch(
    name: Annotated[
        str, typer.Argument(help="smollm2, or a name on the Hugging Face hub.")
    ] = DEFAULT_MODEL,
    cache_dir: CacheDir = None,
) -> None:
    """Fetch a model into the cache, unless it is there."""
    folder = (cache_dir or default_cache_dir()).expanduser()
    model = resolve_model(name, folder, Reporter(sys.stdout))
    print(f"{model.name} ({model.source}) is in {model.path}")
