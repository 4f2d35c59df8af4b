"""From the bytes of a body to a checked shape: every field known, typed and supported."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from replicas.ingress.errors import ApiError, invalid, join_entries, shorten
from replicas.ingress.schema import (
    IGNORABLE,
    NEUTRAL,
    NEUTRAL_OF_MESSAGE,
    ChatBody,
    GenerationBody,
)

BodyT = TypeVar("BodyT", bound=GenerationBody)

_NO_JSON = ("json_invalid", "json_type")


class _Unknown(NamedTuple):
    path: str
    known: Iterable[str]


def parse_body(body: bytes, model: type[BodyT], is_strict: bool) -> tuple[BodyT, tuple[str, ...]]:
    """Read a request body.

    Args:
        body: JSON.
        model: The shape it should have.
        is_strict: Refuse unknown fields.

    Returns:
        The request, and the unknown fields that were ignored.

    Raises:
        ApiError: If it is not JSON, has another shape, or asks for what is not supported.
    """
    try:
        request = model.model_validate_json(body)
    except ValidationError as error:
        raise _shape_error(error) from None
    unknown = list(_unknown_fields(request))
    if unknown and is_strict:
        raise _unknown_error(unknown)
    return request, tuple(shorten(field.path) for field in unknown)


def _shape_error(error: ValidationError) -> ApiError:
    entries = error.errors(include_url=False, include_context=False, include_input=False)
    if entries[0]["type"] in _NO_JSON:
        message = f"the body is not valid JSON: {shorten(entries[0]['msg'])}"
        return invalid(message, code="invalid_request")
    texts = (f"{_path(entry['loc'])}: {entry['msg']}" for entry in entries)
    param = str(entries[0]["loc"][0]) if entries[0]["loc"] else None
    return invalid(join_entries(texts), param, "invalid_request")


def _path(loc: tuple[int | str, ...]) -> str:
    return ".".join(map(str, loc)) or "body"


def _unknown_fields(request: GenerationBody) -> Iterator[_Unknown]:
    """Yield fields that nobody knows.

    Raises:
        ApiError: If a known field asks for what is not supported.
    """
    yield from _judge(request, "", NEUTRAL)
    for name in ("stream_options", "speculation"):
        part = getattr(request, name)
        if part is not None:
            yield from _judge(part, f"{name}.", {})
    if isinstance(request, ChatBody):
        for index, message in enumerate(request.messages):
            yield from _judge(message, f"messages.{index}.", NEUTRAL_OF_MESSAGE)
            if isinstance(message.content, list):
                for part in message.content:
                    yield from _judge(part, f"messages.{index}.content.", {})


def _judge(
    part: BaseModel, prefix: str, neutral: Mapping[str, tuple[Any, ...]]
) -> Iterator[_Unknown]:
    for name, value in (part.model_extra or {}).items():
        if name in neutral:
            if value is not None and value not in neutral[name]:
                path = prefix + name
                raise invalid(f"{path} is not supported with this value", path)
        elif prefix or name not in IGNORABLE:
            yield _Unknown(prefix + name, type(part).model_fields)


def _unknown_error(unknown: list[_Unknown]) -> ApiError:
    first = unknown[0]
    name = first.path.rpartition(".")[2]
    near = difflib.get_close_matches(name, list(first.known), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    texts = [f"unknown parameter {shorten(field.path)}" for field in unknown]
    return invalid(join_entries(texts) + hint, shorten(first.path), "unknown_parameter")
