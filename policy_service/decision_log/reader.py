"""Reads decision logs from files and folders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from policy_service.decision_log.lines import parse_header, parse_record
from policy_service.decision_log.records import LoggedReply, LogHeader, RoundRecord
from policy_service.decision_log.rotation import is_log_name
from policy_service.errors import DecisionLogError


@dataclass(slots=True)
class DecisionLog:
    """What some files hold.

    Attributes:
        replies: By the time of their first round.
        notes: What was left out while reading, in words.
    """

    replies: list[LoggedReply] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_log(
    paths: Sequence[Path], wanted: Callable[[RoundRecord], bool] = lambda _: True
) -> DecisionLog:
    """Read files, and all logs in folders.

    A last line without an end, left by a writer that was killed or that writes on, is left out with
    a note. So are rounds of a reply behind a gap, which a full queue leaves.

    Args:
        paths: Files and folders.
        wanted: Which rounds to keep.

    Raises:
        DecisionLogError: If there is no log, or one that is corrupt or of another version.
    """
    log = DecisionLog()
    found: dict[tuple[str, str, str, int], list[tuple[LogHeader, RoundRecord]]] = defaultdict(list)
    for path in _files(paths):
        for header, record in _rounds(path, log.notes):
            if wanted(record):
                key = (header.incarnation, record.request_id, record.sequence, record.choice)
                found[key].append((header, record))
    num_cut = 0
    for entries in found.values():
        entries.sort(key=lambda entry: entry[1].index)
        reply = _reply(entries)
        num_cut += len(entries) - len(reply.rounds)
        log.replies.append(reply)
    if num_cut:
        log.notes.append(f"{num_cut} rounds behind a gap in their reply were left out")
    log.replies.sort(key=lambda reply: reply.rounds[0].time)
    return log


def _files(paths: Sequence[Path]) -> list[Path]:
    files = []
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if is_log_name(one.name))
            if not inside:
                raise DecisionLogError(f"{path}: no decision log is in this folder")
            files += inside
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def _rounds(path: Path, notes: list[str]) -> Iterator[tuple[LogHeader, RoundRecord]]:
    """Return a file's rounds, each with the header."""
    header: LogHeader | None = None
    for number, line in _lines(path):
        if not line.endswith("\n"):
            notes.append(f"{path}: line {number}, the last, has no end and was left out")
            return
        try:
            if header is None:
                header = parse_header(line)
            else:
                yield header, parse_record(line)
        except DecisionLogError as error:
            raise DecisionLogError(f"{path}, line {number}: {error}") from error
    if header is None:
        notes.append(f"{path}: empty")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        # Only a line feed ends a line; bytes that are no UTF-8 make a line that is refused, or a
        # last one that is left out, and not an error of their own.
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            yield from enumerate(file, start=1)
    except OSError as error:
        raise DecisionLogError(f"cannot read {path}: {error.strerror}") from error


def _reply(entries: Sequence[tuple[LogHeader, RoundRecord]]) -> LoggedReply:
    """Return the rounds up to the first gap."""
    first = entries[0][1].index
    rounds: list[RoundRecord] = []
    for _, record in entries:
        if record.index != first + len(rounds):
            break
        rounds.append(record)
    return LoggedReply(entries[0][0], tuple(rounds), is_from_start=first == 0)
