"""When a decision log begins a new file, and which old ones go. Pure.

Files carry the time they were begun first in their names, so names sort by age. Several Verifiers,
and those that ran before them, share a folder; together they keep ``max_files``, besides files that
somebody still writes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_NAME = re.compile(r"decisions-\d{13}-[0-9a-f]{8}-\d{6}\.jsonl")


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rules of one folder.

    Attributes:
        max_bytes: Largest size of a file.
        max_files: Most files in the folder, those being written included.
    """

    max_bytes: int
    max_files: int

    def is_full(self, file_bytes: int, line_bytes: int) -> bool:
        """Whether the next line has no place in a file of this size."""
        return file_bytes + line_bytes > self.max_bytes

    def outdated(self, names: Collection[str]) -> list[str]:
        """Return which files there are too many, the oldest first; other names do not count."""
        ours = sorted(name for name in names if is_log_name(name))
        return ours[: max(0, len(ours) - self.max_files)]


def log_name(begun_at: float, incarnation: str, number: int) -> str:
    """Return the name of a Verifier's next file.

    Args:
        begun_at: Seconds since 1970.
        incarnation: The writer's, in hexadecimal digits.
        number: Files it has begun before.

    >>> log_name(1_700_000_000.5, "0f3a5577aa", 2)
    'decisions-1700000000500-0f3a5577-000002.jsonl'
    """
    return f"decisions-{int(begun_at * 1000):013d}-{incarnation[:8]}-{number:06d}.jsonl"


def is_log_name(name: str) -> bool:
    """Whether a file of this name is a decision log's."""
    return _NAME.fullmatch(name) is not None
