"""Finds learners by name: ``policy_service/learners/<name>.py`` ends ``LEARNER = TheClass``."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any, cast

from policy_service import learners
from policy_service.api import Learner
from policy_service.errors import PolicyConfigError
from policy_service.naming import unknown


def learner_names() -> tuple[str, ...]:
    """Return the names of all learners there are, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(learners.__path__)))


def load_learner(name: str, params: Mapping[str, Any]) -> Learner[Any]:
    """Make the learner ``name`` with these parameters.

    Raises:
        PolicyConfigError: If there is no such learner or parameter, or a value is out of range.
    """
    names = learner_names()
    if name not in names:
        raise PolicyConfigError(unknown("learner", name, names))
    learner_class = importlib.import_module(f"{learners.__name__}.{name}").LEARNER
    known = inspect.signature(learner_class).parameters
    for param in params:
        if param not in known:
            raise PolicyConfigError(unknown(f"parameter of learner {name!r}", param, known))
    return cast(Learner[Any], learner_class(**params))
