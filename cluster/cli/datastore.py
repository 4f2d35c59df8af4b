"""``banditserve datastore``: what the drafting method ``rest`` looks things up in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.options import CacheDir
from cluster.config import default_cache_dir
from cluster.progress import Reporter
from drafters.datastore.builder import SHARD_TOKENS, DatastoreBuilder
from drafters.datastore.corpus import corpus_bytes, read_corpus
from drafters.datastore.header import Header
from drafters.datastore.store import CHECKED_BYTES, Datastore
from models.store import DEFAULT_MODEL, resolve_model

app = typer.Typer(
    help="Datastores: what the drafting method rest looks things up in.", no_args_is_help=True
)


@app.command()
def build(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The datastore; another one there is replaced."),
    ],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="Text files, one document each, or JSON lines (.jsonl, .ndjson), one a line: "
            "token_ids of replies that were served, or messages of a chat, or a text.",
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "--tokenizer",
            metavar="NAME",
            help="Model that is to be served: smollm2, a name on the Hugging Face hub, or a local "
            "folder, which needs no more than the tokenizer.",
        ),
    ] = DEFAULT_MODEL,
    field: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the text in JSON lines.")
    ] = "text",
    shard_tokens: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Tokens sorted at a time: fewer take less memory (about 70 bytes each), more make "
            "lookups in a large datastore faster.",
        ),
    ] = SHARD_TOKENS,
    cache_dir: CacheDir = None,
) -> None:
    """Build a datastore for a model from text, JSON lines or served replies.

    The corpus may be larger than memory.
    """
    total_bytes = corpus_bytes(inputs)
    reporter = Reporter(sys.stdout)
    name, folder = _tokenizer(model, (cache_dir or default_cache_dir()).expanduser(), reporter)
    from drafters.datastore.encoding import Encoder, fill  # slow to import, as is the next
    from models.tokenizer import load_tokenizer

    encoder = Encoder(name, load_tokenizer(name, str(folder)))
    with (
        reporter.task("Building the datastore", total_bytes) as task,
        DatastoreBuilder(
            out,
            encoder.vocabulary,
            shard_tokens=shard_tokens,
            on_shard=lambda num_tokens: task.note(f"{num_tokens:,} tokens, sorting"),
        ) as builder,
    ):
        for num_bytes in fill(builder, read_corpus(inputs, field), encoder):
            task(num_bytes)
            task.note(f"{builder.num_tokens:,} tokens")
        header = builder.finish()
        task.note(f"{header.num_tokens:,} tokens")
    _show(out, header)


@app.command()
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The datastore.")],
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help=f"Check all of the data; without it, {CHECKED_BYTES >> 20} MiB at most.",
        ),
    ] = False,
) -> None:
    """Say what a datastore holds and for which tokenizer, and check that it is whole."""
    reporter = Reporter(sys.stdout)
    if verify:
        total_bytes = file.stat().st_size if file.is_file() else None
        with reporter.task("Checking the datastore", total_bytes) as task:
            datastore = Datastore(file, checked_bytes=None, on_checked=task)
    else:
        datastore = Datastore(file)
    _show(file, datastore.header)


def _tokenizer(model: str, cache_dir: Path, reporter: Reporter) -> tuple[str, Path]:
    """Return the model's name and the folder of its tokenizer."""
    folder = Path(model).expanduser()
    if (folder / "tokenizer.json").is_file():
        return folder.resolve().name, folder
    found = resolve_model(model, cache_dir, reporter)
    return found.name, found.path


def _show(path: Path, header: Header) -> None:
    lines = {
        "datastore": str(path),
        "tokenizer": f"{header.tokenizer_name}, fingerprint {header.tokenizer_fingerprint[:16]}",
        "vocabulary": f"{header.vocab_size:,} ids, {header.token_bytes} bytes each",
        "documents": f"{header.num_documents:,}",
        "tokens": f"{header.num_tokens:,}",
        "shards": f"{header.num_shards:,}",
        "longest match": f"{header.sort_depth - 1} tokens",
        "size": f"{header.file_bytes / 1e6:,.1f} MB",
        "checksum": header.checksum[:16],
    }
    for name, value in lines.items():
        print(f"{name + ':':<15}{value}")
