"""Find drills by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches

from cluster.drills import faults
from cluster.drills.api import Drill
from cluster.errors import DrillError


def names() -> list[str]:
    """Return the names of all drills, in alphabetical order."""
    found = pkgutil.iter_modules(faults.__path__)
    return sorted(module.name.replace("_", "-") for module in found)


def by_layout(some: Iterable[str]) -> list[str]:
    """Return drills in an order in which those on the same kind of system follow each other."""
    return sorted(some, key=lambda name: (repr(drill(name).layout), name))


def drill(name: str) -> Drill:
    """Return a drill.

    Raises:
        DrillError: If there is none of that name.
    """
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f"; did you mean {near[0]}?" if near else "; see banditserve drill --list"
        raise DrillError(f"there is no drill {name!r}{hint}")
    module = importlib.import_module(f"{faults.__name__}.{name.replace('-', '_')}")
    found: Drill = module.DRILL
    return found
