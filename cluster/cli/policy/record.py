"""``banditserve policy record``: what every drafter would have done along real replies."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.options import CacheDir, ConfigFile, Model
from cluster.config import load_config
from cluster.progress import Reporter
from models.store import resolve_model


def record(
    workloads: Annotated[
        Path,
        typer.Argument(
            metavar="WORKLOADS", help="A file of prompts (JSON lines), or a folder of such files."
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The trace; another one there is replaced.")
    ],
    model: Model = None,
    config: ConfigFile = None,
    prompts: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most prompts of each category of a workload.")
    ] = 2,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=2, help="Most tokens of a reply.")
    ] = 200,
    temperature: Annotated[float, typer.Option(min=0, help="Of the replies; 0 is greedy.")] = 0.0,
    max_draft: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="Largest draft to ask for.")
    ] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Of the replies' sampling.")] = 0,
    cache_dir: CacheDir = None,
) -> None:
    """Record every drafter's drafts at every position of the replies to some prompts.

    The drafters are those of the configuration file; without one, all that need no parameter. The
    trace has the drafts' lengths, shapes, scores and times, what of them was right, and the
    machine's step times, but no text. `make bench-policy ARGS="--trace OUT"` replays it.
    """
    system = load_config(config, {"model": model, "cache_dir": cache_dir})
    reporter = Reporter(sys.stdout)
    from cluster.traces.prompts import first_prompts

    asked = first_prompts(workloads, prompts)
    folder = resolve_model(system.model, system.cache_dir, reporter)
    import torch  # slow to import, as are the next
    from transformers.utils.logging import disable_progress_bar

    from cluster.traces.files import write_trace
    from cluster.traces.making import RecordingOptions, record_trace, self_sufficient_drafters

    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    torch.set_num_threads(os.cpu_count() or 1)
    drafters = system.drafters if config is not None else self_sufficient_drafters()
    options = RecordingOptions(temperature, max_tokens, max_draft, seed)
    with reporter.task("Recording") as task:
        trace = record_trace(folder, asked, drafters, options, task.note)
    write_trace(out, trace)
    tokens = sum(request.num_tokens for request in trace.requests)
    print(
        f"{out}: {len(trace.requests)} replies of {trace.model}, {tokens:,} tokens, "
        f"with the drafts of {', '.join(trace.versions)} ({out.stat().st_size / 1e6:.1f} MB)"
    )
