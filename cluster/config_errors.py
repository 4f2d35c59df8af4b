"""Say in one line each what is wrong with a configuration, with the nearest right name."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def describe(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return one line for each fault, beginning with the key's dotted path.

    >>> class Port(BaseModel, extra="forbid"):
    ...     port: int = 1
    >>> try:
    ...     Port.model_validate({"prot": 2})
    ... except ValidationError as error:
    ...     describe(error, Port)
    ['prot: unknown key; did you mean port?']
    """
    return [_line(dict(fault), model) for fault in error.errors(include_url=False)]


def keys_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the keys that may stand under a path of the configuration."""
    found: type[BaseModel] | None = model
    steps = list(path)
    while steps and found is not None:
        field = found.model_fields.get(str(steps.pop(0)))
        if field is None:
            return []
        below = _models_in(field.annotation)
        if steps and _has_many(field.annotation):
            steps.pop(0)  # the mapping's own key, which the user chooses, or the item's number
        found = below[0] if below else None
    return list(found.model_fields) if found else []


def _line(fault: dict[str, Any], model: type[BaseModel]) -> str:
    path = [part for part in fault["loc"] if part != "[key]"]
    where = ".".join(str(part) for part in path)
    if fault["type"] == "extra_forbidden":
        near = get_close_matches(str(path[-1]), keys_at(model, path[:-1]), n=1, cutoff=0.5)
        return f"{where}: unknown key" + (f"; did you mean {near[0]}?" if near else "")
    message = fault["msg"].removeprefix("Value error, ")
    if not where:
        return str(message)
    found = "" if fault["type"] == "value_error" else f", found {fault['input']!r}"
    return f"{where}: {message[0].lower()}{message[1:]}{found}"


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _has_many(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) in (dict, list, tuple)
