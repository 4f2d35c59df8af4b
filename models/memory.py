"""How much memory is there to take: of the GPU, or of the machine and the container it is in."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Return the bytes that could be taken on ``device`` without driving anything else out."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    left = [available_bytes(_MEMINFO), container_bytes(_CGROUP)]
    known = [value for value in left if value is not None]
    return min(known, default=os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def available_bytes(meminfo: Path) -> int | None:
    """Return the machine's available memory, file cache included; None where Linux is not."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    fields = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(fields[0][1]) * 1024 if fields else None


def container_bytes(cgroup: Path) -> int | None:
    """Return what a container may still take (cgroup v2); None if it has no limit."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = (cgroup / "memory.current").read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))
