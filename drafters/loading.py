"""Find a drafting method by its file name and make a drafter of it.

Nothing is registered: ``drafters.methods.<method>`` is imported and its ``DRAFTER`` is the class,
so it resolves alike in every process and a method's libraries load only where it is used.

A method whose drafters may not fit the target model has a function ``check`` beside its class:
``check(params: Mapping[str, Any], target: TargetInfo) -> None`` raises ``DrafterConfigError`` with
what was expected and found. It is called before anything is deployed.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from drafters import methods
from drafters.api import Drafter, TargetInfo
from drafters.config import DrafterConfig
from drafters.errors import DrafterConfigError


def method_names() -> list[str]:
    """Return the names of all methods, sorted.

    >>> "prompt_lookup" in method_names()
    True
    """
    names = (module.name for module in pkgutil.iter_modules(methods.__path__))
    return sorted(name for name in names if not name.startswith("_"))


def check_config(config: DrafterConfig, target: TargetInfo | None = None) -> None:
    """Check that the method exists, knows every parameter and has those that it cannot do without.

    Args:
        config: The drafter, which is not made for this.
        target: The model to draft for. If given, the method's own ``check``, where it has one,
            looks at the values too: that may read files and take seconds.

    Raises:
        DrafterConfigError: If something is wrong, with the nearest right name for a wrong one.
    """
    module = _method_module(config.method)
    _check_params(config.method, module.DRAFTER, config.params)
    if target is not None and checks_target(config):
        module.check(config.params, target)


def checks_target(config: DrafterConfig) -> bool:
    """Return whether the method has a check for which the target must be known.

    Raises:
        DrafterConfigError: If there is no such method.
    """
    return hasattr(_method_module(config.method), "check")


def load_drafter(config: DrafterConfig) -> Drafter:
    """Return a new drafter of the configured method.

    Raises:
        DrafterConfigError: If the method or a parameter is unknown, or a value cannot be.
    """
    drafter_class = _method_module(config.method).DRAFTER
    _check_params(config.method, drafter_class, config.params)
    drafter: Drafter = drafter_class(**config.params)
    return drafter


def _method_module(method: str) -> Any:
    names = method_names()
    if method not in names:
        raise DrafterConfigError(f"unknown drafting method {_nearest(method, names)}")
    return importlib.import_module(f"{methods.__name__}.{method}")


def _check_params(method: str, drafter_class: Any, params: Collection[str]) -> None:
    known = inspect.signature(drafter_class).parameters
    for name in params:
        if name not in known:
            raise DrafterConfigError(f"{method}: unknown parameter {_nearest(name, list(known))}")
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in params:
            raise DrafterConfigError(f"{method}: parameter {name!r} is required, and is missing")


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{name!r}{hint} (known: {', '.join(known) or 'none'})"
