"""What a measurement says of the machine that it was made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Return the processor's name and the number of cores in use."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.is_file() else ():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {len(os.sched_getaffinity(0))} cores"
