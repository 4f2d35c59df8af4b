"""Error messages that name the nearest right name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, given: object, known: Iterable[str]) -> str:
    """Return the message for a name that does not exist.

    >>> unknown("learner", "ucbspek", ["fixed", "ucbspec"])
    "unknown learner 'ucbspek'; did you mean 'ucbspec'? Known: fixed, ucbspec"
    """
    names = sorted(known)
    near = get_close_matches(str(given), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? Known: " if near else "known: "
    return f"unknown {what} {given!r}; {hint}{', '.join(names) or 'none'}"
