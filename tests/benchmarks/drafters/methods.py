"""The drafters that are measured, and a datastore for the one that needs it.

The datastore is of text that every machine has: the modules of Python's standard library. The
draft model is the target itself, because there is no smaller one with its tokenizer: its drafts are
as good as they can be and cost as much as they can.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from drafters.config import DrafterConfig
from drafters.datastore.builder import Vocabulary, build_datastore
from models.tokenizer import Tokenizer, fingerprint

GAMMAS: dict[str, tuple[int, ...]] = {
    "prompt_lookup": (1, 2, 4, 8, 16),
    "suffix": (1, 2, 4, 8, 16),
    "rest": (1, 2, 4, 8, 16),
    "draft_model": (2, 4),
}
"""Speculation lengths tried, by method; drafts of a model cost a forward a token."""


def standard_library_datastore(path: Path, tokenizer: Tokenizer, num_files: int = 120) -> Path:
    """Build a datastore of the largest modules of the standard library."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(library.glob("*.py"), key=lambda file: -file.stat().st_size)[:num_files]
    documents = (tokenizer.encode(file.read_text(errors="replace")) for file in files)
    vocabulary = Vocabulary("stdlib", len(tokenizer), fingerprint(tokenizer))
    build_datastore(path, vocabulary, documents)
    return path


def parameters(method: str, datastore: Path, model: Path) -> dict[str, Any]:
    """Return the parameters that a method is measured with."""
    if method == "rest":
        return {"datastore": str(datastore)}
    if method == "draft_model":
        return {"model": str(model), "cache_tokens": 8192, "num_threads": 2}
    return {}


def in_process(method: str, datastore: Path, model: Path) -> DrafterConfig:
    """Return a method inside the measuring process, with all the time it wants."""
    return DrafterConfig(
        method=method,
        params=parameters(method, datastore, model),
        placement="in_process",
        deadline_ms=60_000,
    )
