"""Read text for a datastore, piece by piece: plain text, JSON lines of text, chats or token ids.

Never more than one line of JSON, or about a million characters of plain text, is held at a time.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafters.errors import CorpusError

JSON_LINES = (".jsonl", ".ndjson")
"""Endings of files that are read as one JSON object a line; all others are plain text."""

_CHUNK_BYTES = 1 << 20

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Passage:
    """A document, or a piece of one that is too long to be held whole.

    Attributes:
        content: Text, the messages of a chat, or token ids.
        where: File and, in JSON lines, line, for errors.
        num_bytes: Bytes of the file that it took.
        ends_document: Whether the document ends with it.
    """

    content: str | Messages | tuple[int, ...]
    where: str
    num_bytes: int
    ends_document: bool = True


def read_corpus(paths: Sequence[Path], field: str = "text") -> Iterator[Passage]:
    """Read files one after the other.

    A file of plain text is one document; a long one comes in pieces, cut at line breaks or spaces.
    In JSON lines every line is one: ``token_ids`` are taken as they are (replies that were served,
    from this or another system), else ``messages`` as a chat, else ``field`` as text.

    Args:
        paths: The files.
        field: Name of the text in JSON lines.

    Raises:
        CorpusError: If a file cannot be read, is not UTF-8, or a line is not as described.
    """
    for path in paths:
        pieces = _json_lines(path, field) if path.suffix in JSON_LINES else _plain_text(path)
        try:
            yield from pieces
        except OSError as error:
            raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error


def corpus_bytes(paths: Sequence[Path]) -> int:
    """Return the size of all files, which must be there before anything is read.

    Raises:
        CorpusError: If one is missing or is no file.
    """
    for path in paths:
        if not path.is_file():
            found = "a folder" if path.is_dir() else "none"
            raise CorpusError(f"no input at {path}: expected a file, found {found}")
    return sum(path.stat().st_size for path in paths)


def _plain_text(path: Path) -> Iterator[Passage]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    num_read, text = 0, ""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            text += _decode(decoder, chunk, path, num_read)
            num_read += len(chunk)
            cut = _cut(text)
            yield Passage(text[:cut], str(path), len(chunk), ends_document=False)
            text = text[cut:]
    yield Passage(text + _decode(decoder, b"", path, num_read), str(path), 0)


def _decode(decoder: codecs.IncrementalDecoder, chunk: bytes, path: Path, num_read: int) -> str:
    try:
        return decoder.decode(chunk, final=not chunk)
    except UnicodeDecodeError as error:
        place = num_read + len(chunk) - len(error.object) + error.start
        raise CorpusError(f"{path} is not UTF-8 at byte {place}: {error.reason}") from error


def _cut(text: str) -> int:
    """Return where to cut a text so that few tokens change: after a line, or before a space."""
    after_line = text.rfind("\n") + 1
    before_space = text.rfind(" ")
    return after_line or max(before_space, 0) or len(text)


def _json_lines(path: Path, field: str) -> Iterator[Passage]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}:{number}"
            if line.isspace():
                continue
            yield Passage(_content(_object(line, where), field, where), where, len(line))


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:  # also what is not UTF-8
        raise CorpusError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorpusError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def _content(value: dict[str, Any], field: str, where: str) -> str | Messages | tuple[int, ...]:
    if "token_ids" in value:
        return _token_ids(value["token_ids"], where)
    if "messages" in value:
        return _messages(value["messages"], where)
    if field not in value:
        names = ", ".join(map(repr, value)) or "nothing"
        raise CorpusError(f"{where}: expected {field!r}, 'messages' or 'token_ids', found {names}")
    if not isinstance(value[field], str):
        raise CorpusError(
            f"{where}: expected {field!r} to be a text, found {type(value[field]).__name__}"
        )
    return str(value[field])


def _token_ids(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise CorpusError(f"{where}: expected 'token_ids' to be a list of whole numbers")
    return tuple(value)


def _messages(value: Any, where: str) -> Messages:
    if not isinstance(value, list):
        raise CorpusError(f"{where}: expected 'messages' to be a list")
    return [_message(message, where) for message in value]


def _message(value: Any, where: str) -> dict[str, str]:
    """Return role and content of a message; a content in parts is the texts among them."""
    role, content = (value.get("role"), value.get("content")) if isinstance(value, dict) else (0, 0)
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(text for text in texts if isinstance(text, str))
    if not isinstance(role, str) or not isinstance(content, str):
        raise CorpusError(f"{where}: expected every message to have texts 'role' and 'content'")
    return {"role": role, "content": content}
