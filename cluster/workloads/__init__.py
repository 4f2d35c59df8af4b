"""Prompts for load tests and benchmarks: what comes with the project, and how to read a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
"""What comes with the project: chat, code, retrieval, and a small mixed set."""

MIXED = FOLDER / "mixed.jsonl"
"""The small set: some chat, code, edits, retrieval and arithmetic."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a workload.

    Attributes:
        id: Unique within the file.
        workload: What kind of load it belongs to.
        category: A finer kind.
        turns: The user's turns, oldest first.
    """

    id: str
    workload: str
    category: str
    turns: tuple[str, ...]


def read_prompts(path: Path = MIXED) -> list[Prompt]:
    """Read prompts, one JSON object a line with ``id``, ``workload``, ``category``, ``turns``.

    Raises:
        ValueError: If a line is not of that form; names the line.
    """
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            prompts.append(_parse(line, f"{path.name}, line {number}"))
    return prompts


def _parse(line: str, where: str) -> Prompt:
    try:
        row: dict[str, Any] = json.loads(line)
        turns = tuple(row["turns"])
        prompt = Prompt(str(row["id"]), row["workload"], row.get("category", ""), turns)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{where}: expected id, workload, category and turns: {error}") from error
    if not turns or not all(isinstance(turn, str) for turn in turns):
        raise ValueError(f"{where}: turns must be a list of strings, not empty")
    return prompt
