"""Find a drafting method by its file name and make a drafter of it.

Nothing is registered: ``drafters.methods.<method>`` is imported and its ``DRAFTER`` is the class,
so it resolves alike in every process and a method's libraries load only where it is used.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from drafters import methods
from drafters.api import Drafter
from drafters.config import DrafterConfig
from drafters.errors import DrafterConfigError


def method_names() -> list[str]:
    """Return the names of all methods, sorted.

    >>> "prompt_lookup" in method_names()
    True
    """
    names = (module.name for module in pkgutil.iter_modules(methods.__path__))
    return sorted(name for name in names if not name.startswith("_"))


def check_config(config: DrafterConfig) -> None:
    """Check that the method exists and knows every parameter, without making the drafter.

    Raises:
        DrafterConfigError: If not, with the nearest right name.
    """
    _check_params(config.method, _drafter_class(config.method), config.params)


def load_drafter(config: DrafterConfig) -> Drafter:
    """Return a new drafter of the configured method.

    Raises:
        DrafterConfigError: If the method or a parameter is unknown, or a value cannot be.
    """
    drafter_class = _drafter_class(config.method)
    _check_params(config.method, drafter_class, config.params)
    drafter: Drafter = drafter_class(**config.params)
    return drafter


def _drafter_class(method: str) -> Any:
    names = method_names()
    if method not in names:
        raise DrafterConfigError(f"unknown drafting method {_nearest(method, names)}")
    return importlib.import_module(f"{methods.__name__}.{method}").DRAFTER


def _check_params(method: str, drafter_class: Any, params: Iterable[str]) -> None:
    known = list(inspect.signature(drafter_class).parameters)
    for name in params:
        if name not in known:
            raise DrafterConfigError(f"{method}: unknown parameter {_nearest(name, known)}")


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{name!r}{hint} (known: {', '.join(known) or 'none'})"
