"""Measure the engine, print every figure beside its goal, and write ``.bench/engine.json``."""

from __future__ import annotations

import os
from typing import Annotated

import torch
import typer

from cluster.config import default_cache_dir
from cluster.workloads import read_prompts
from models.config import PagedModelConfig
from models.paged_model import PagedModel
from models.store import DEFAULT_MODEL, resolve_model
from models.tokenizer import load_tokenizer
from tests.benchmarks.engine.decode import decode_figures, prefix_figures
from tests.benchmarks.engine.forward import forward_figures, load_transformers
from tests.benchmarks.engine.http import http_figures
from tests.benchmarks.report import publish

AT_LEAST = {
    "forward_speedup_1": 2.0,
    "forward_speedup_8": 3.0,
    "decode_speedup_b1": 2.0,
    "decode_speedup_b16": 1.5,
    "http_share_16": 0.85,
}
AT_MOST = {"overhead_share_b1": 0.10, "overhead_share_b16": 0.15, "prefix_ttft_ratio": 0.2}


def main(
    model: Annotated[str, typer.Option(help="Target model.")] = DEFAULT_MODEL,
    rounds: Annotated[int, typer.Option(help="Rounds of what takes seconds.")] = 5,
    forwards: Annotated[int, typer.Option(help="Forwards of each size.")] = 25,
    max_tokens: Annotated[int, typer.Option(help="Tokens of each reply.")] = 48,
    http: Annotated[bool, typer.Option(help="Measure HTTP too; starts a system.")] = True,
) -> None:
    """Compare the engine with transformers and with itself behind HTTP."""
    torch.set_num_threads(os.cpu_count() or 1)
    folder = resolve_model(model, default_cache_dir())
    tokenizer = load_tokenizer(folder.name, str(folder.path))
    prompts = [tokenizer.encode(prompt.turns[0]) for prompt in read_prompts()]
    ours = PagedModel(folder.path, PagedModelConfig(cache_tokens=16384))
    theirs = load_transformers(folder.path)
    figures = forward_figures(ours, theirs, forwards)
    figures |= decode_figures(ours, theirs, prompts, rounds, max_tokens)
    figures |= prefix_figures(ours, rounds)
    del theirs
    if http:
        figures |= http_figures(ours, folder, prompts, rounds, max_tokens)
    about = f"{folder.name}, float32, greedy; medians"
    publish("engine", about, figures, AT_LEAST, AT_MOST)


if __name__ == "__main__":
    typer.run(main)
