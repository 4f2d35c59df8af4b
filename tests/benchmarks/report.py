"""What every benchmark says of the machine it ran on, and how it writes its figures."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def machine() -> str:
    """Return the processor's name and the number of cores in use."""
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def write_figures(name: str, figures: Mapping[str, float]) -> Path:
    """Write flat figures to ``.bench/NAME.json`` and return its path."""
    path = ROOT / ".bench" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(dict(figures), indent=2) + "\n")
    return path
