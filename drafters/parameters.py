"""Checks of parameters that drafting methods have in common."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from drafters.errors import DrafterConfigError


def check_whole(method: str, name: str, value: Any, least: int) -> None:
    """Check that a parameter is a whole number of at least ``least``.

    Raises:
        DrafterConfigError: If not.
    """
    if type(value) is not int or value < least:
        raise DrafterConfigError(
            f"{method}: {name} is a whole number of at least {least}, got {value!r}"
        )


def check_choice(method: str, name: str, value: Any, known: Collection[str]) -> None:
    """Check that a parameter is one of the names there are.

    Raises:
        DrafterConfigError: If not.
    """
    if value not in known:
        raise DrafterConfigError(f"{method}: {name} is one of {', '.join(known)}, got {value!r}")
