"""Exports: what was learnt of one target model as a file, to be taken over by another cluster.

An export is JSON with a version, a name of its own and a digest of its cells. Taking it over sends
it as the batches of a replica with that name, so the store adds it once however often it is tried,
and a try that was cut short is carried on with. Cells keep their epochs, and so their age, and
their drafters' versions, known or not.

Pure: reading and writing files, and drawing names, is done elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.errors import ExportError
from policy_service.ledger import MAX_BATCH_CELLS
from policy_service.merge import Epochs
from policy_service.redis_pool.schema import COUNTERS, LARGEST

FORMAT = "banditserve policy export"
VERSION = 1
REPLICA = "import"
"""Name under which exports are taken over."""


@dataclass(frozen=True, slots=True)
class Export:
    """What was learnt of one target model.

    Attributes:
        name: Different for every export.
        target_model: Name of the target model.
        created_at: Seconds since 1970.
        epochs: Counts by start of the epoch.
    """

    name: str
    target_model: str
    created_at: float
    epochs: Epochs


def export_text(export: Export) -> str:
    """Return an export as text that ``parse_export`` reads."""
    cells = [
        [
            epoch,
            key.context,
            key.arm,
            key.drafter_version,
            *(getattr(counts, name) for name in COUNTERS),
        ]
        for epoch, table in sorted(export.epochs.items())
        for key, counts in sorted(table.items())
    ]
    head = {
        "format": FORMAT,
        "version": VERSION,
        "name": export.name,
        "target_model": export.target_model,
        "created_at": export.created_at,
        "counters": COUNTERS,
        "digest": _digest(cells),
    }
    lines = ",\n".join(json.dumps(cell) for cell in cells)
    return json.dumps(head, indent=1).removesuffix("\n}") + f',\n "cells": [\n{lines}\n]}}\n'


def parse_export(text: str) -> Export:
    """Read an export.

    Raises:
        ExportError: If it is none, newer than this version knows, or not as it was written.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ExportError(f"not an export: no JSON ({error})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ExportError(f"not an export: expected format {FORMAT!r}")
    if content.get("version") != VERSION:
        raise ExportError(
            f"an export of version {content.get('version')!r}; this version knows {VERSION}"
        )
    try:
        return _export(content)
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"the export is corrupt: {type(error).__name__}: {error}") from None


def batches(export: Export, generation: int) -> Iterator[OutcomeBatch]:
    """Yield an export as batches, numbered from 1, always the same for the same generation.

    After a reset the same export may be taken over once more.
    """
    incarnation, sequence = f"{export.name}.{generation}", 0
    for epoch, cells in sorted(export.epochs.items()):
        items = sorted(cells.items())
        for start in range(0, len(items), MAX_BATCH_CELLS):
            sequence += 1
            deltas = dict(items[start : start + MAX_BATCH_CELLS])
            yield OutcomeBatch(
                REPLICA, incarnation, sequence, epoch, export.target_model, deltas, generation
            )


def _export(content: Mapping[str, Any]) -> Export:
    if _digest(content["cells"]) != content["digest"]:
        raise ValueError("its cells are not those that were written")
    counters = list(content["counters"])
    places = [counters.index(name) if name in counters else None for name in COUNTERS]
    epochs: dict[int, dict[CellKey, ArmCounts]] = {}
    for epoch, context, arm, drafter_version, *numbers in content["cells"]:
        key = CellKey(_text(context), _text(arm), _text(drafter_version))
        counts = [0 if place is None else _count(numbers[place]) for place in places]
        epochs.setdefault(_count(epoch), {})[key] = ArmCounts(*counts)
    return Export(
        _text(content["name"]),
        _text(content["target_model"]),
        float(content["created_at"]),
        epochs,
    )


def _digest(cells: Any) -> str:
    return hashlib.sha256(json.dumps(cells, separators=(",", ":")).encode()).hexdigest()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r}")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise ValueError(f"expected an integer from 0 to {LARGEST}, found {value!r}")
    return value
