"""The trace to play on: one that is given, or one recorded here and kept."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from cluster.config import default_cache_dir
from cluster.traces.files import read_trace, write_trace
from cluster.traces.format import Trace
from cluster.traces.machine import machine
from cluster.traces.making import RecordingOptions, record_trace
from cluster.traces.prompts import first_prompts
from cluster.workloads import Prompt
from models.store import resolve_model
from models.tokenizer import load_tokenizer
from tests.benchmarks.drafters.methods import in_process, standard_library_datastore
from tests.benchmarks.report import ROOT

METHODS = ("prompt_lookup", "suffix", "rest")
"""The retrieval methods; the draft model there is would be the target itself."""


def recorded(workloads: Path, num_prompts: int, model: str, options: RecordingOptions) -> Trace:
    """Return the trace of some prompts, recorded now if it was not before.

    Args:
        workloads: A file of prompts, or a folder of such files.
        num_prompts: Most prompts of each category.
        model: The target.
        options: How replies are made.
    """
    prompts = first_prompts(workloads, num_prompts)
    path = ROOT / ".bench" / "traces" / f"{_key(prompts, model, options)}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_trace(path, _record(prompts, model, options))
    print(f"trace: {path.relative_to(ROOT)}", flush=True)
    return read_trace(path)


def _key(prompts: Sequence[Prompt], model: str, options: RecordingOptions) -> str:
    """Return a name for what is recorded; drafters that change need the trace to be deleted."""
    parts = [model, machine(), METHODS, asdict(options), [asdict(prompt) for prompt in prompts]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _record(prompts: Sequence[Prompt], model: str, options: RecordingOptions) -> Trace:
    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    torch.set_num_threads(os.cpu_count() or 1)
    folder = resolve_model(model, default_cache_dir())
    tokenizer = load_tokenizer(folder.name, str(folder.path))
    with tempfile.TemporaryDirectory() as scratch:
        datastore = standard_library_datastore(Path(scratch) / "stdlib.rest", tokenizer)
        drafters = {method: in_process(method, datastore, folder.path) for method in METHODS}
        return record_trace(
            folder, prompts, drafters, options, lambda text: print(f"recording: {text}", flush=True)
        )
