"""Write a configuration as YAML, each key with its meaning as a comment above it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

_WIDTH = 96


def config_text(config: BaseModel) -> str:
    """Return the configuration as YAML that can be read back, every key explained."""
    return "\n".join(_lines(config, 0)) + "\n"


def _lines(config: BaseModel, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, field in type(config).model_fields.items():
        for line in textwrap.wrap(field.description or "", _WIDTH - len(indent)):
            yield f"{indent}# {line}"
        yield from _entry(name, getattr(config, name), depth)


def _entry(name: str, value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, BaseModel):
        yield f"{indent}{name}:"
        yield from _lines(value, depth + 1)
    elif isinstance(value, dict) and any(isinstance(below, BaseModel) for below in value.values()):
        yield f"{indent}{name}:"
        for key, below in value.items():
            yield from _entry(key, below, depth + 1)
    else:
        yield f"{indent}{name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, tuple):
        value = list(value)
    if not isinstance(value, str | int | float | bool | list | dict | None):
        value = str(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n...\n").strip()
