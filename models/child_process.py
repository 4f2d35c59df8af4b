"""Child processes that end with their parent, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Runs in a small Python of its own and then becomes the command. Code between fork and exec in the
# parent would do the same, but may deadlock in a process that has threads, as ours have.
_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; an exec does not undo it
if os.getppid() != int(sys.argv[1]):  # the parent ended before the line above
    os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def die_with_parent(command: Sequence[str]) -> list[str]:
    """Return the command line that runs ``command`` and is killed when the calling thread ends.

    Linux ties the signal to the thread that started the child, not to its process: start such
    children in a thread that lives as long as they should. Elsewhere than on Linux children may
    outlive a parent that was killed.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-S", "-E", "-c", _BECOME, str(os.getpid()), *command]


def with_packages(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a Python finds these packages, installed or not."""
    root = str(Path(__file__).resolve().parent.parent)
    known = environment.get("PYTHONPATH", "")
    if root in known.split(os.pathsep):
        return dict(environment)
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (root, known)))}
