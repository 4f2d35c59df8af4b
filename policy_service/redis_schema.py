"""Names of keys and fields in Redis, and what they hold. Pure; schema version 1.

All keys of one target model share a hash tag, so they live in one slot and a script may touch them
together, also in a Redis Cluster; and a failover rolls all of them back together::

    <prefix>:{<model>}:schema                    string   version of this schema
    <prefix>:{<model>}:epochs                    hash     start of an epoch -> its revision
    <prefix>:{<model>}:counts:<epoch>            hash     field -> integer; expires
    <prefix>:{<model>}:seen:<replica>:<inc.>     string   highest sequence applied; expires later

A revision is another text after every change of its epoch. A field is
``context/arm/drafter version/counter``, each part quoted as in URLs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields
from urllib.parse import quote, unquote

from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.errors import StoreSchemaError

SCHEMA_VERSION = "1"

COUNTERS = tuple(field.name for field in fields(ArmCounts))
_SAFE = "|=:,.~"


class Keys:
    """Names of the keys of one target model."""

    def __init__(self, prefix: str, target_model: str) -> None:
        self._base = f"{prefix}:{{{slug(target_model)}}}"
        self.schema = f"{self._base}:schema"
        self.epochs = f"{self._base}:epochs"

    def counts(self, epoch: int | str) -> str:
        """Return the key of an epoch's counters."""
        return f"{self._base}:counts:{epoch}"

    def seen(self, replica: str, incarnation: str) -> str:
        """Return the key of an incarnation's watermark."""
        return f"{self._base}:seen:{quote(replica, safe='')}:{quote(incarnation, safe='')}"


def slug(target_model: str) -> str:
    """Return a name for a model that may stand in a key; different models get different ones.

    >>> slug("smollm2")
    'smollm2'
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", target_model)
    if plain and plain == target_model and len(plain) <= 80:
        return plain
    return f"{plain[:80]}.{hashlib.sha256(target_model.encode()).hexdigest()[:8]}"


def increments(batch: OutcomeBatch) -> list[str]:
    """Return field, increment, field, increment, ... of a batch; zeros are left out."""
    return [
        text
        for key, counts in batch.deltas.items()
        for counter in COUNTERS
        if (value := getattr(counts, counter))
        for text in (_field(key, counter), str(value))
    ]


def parse_counts(values: Mapping[str, str]) -> dict[CellKey, ArmCounts]:
    """Read an epoch's hash.

    Counters that this version does not know are left out; a later one may have added them.

    Raises:
        StoreSchemaError: If a field or value has another form.
    """
    cells: dict[CellKey, dict[str, int]] = {}
    for field, value in values.items():
        parts = [unquote(part) for part in field.split("/")]
        if len(parts) != 4 or not value.removeprefix("-").isdecimal():
            raise StoreSchemaError(
                f"a counter is context/arm/version/name with an integer, got {field!r}: {value!r}"
            )
        if parts[3] in COUNTERS:
            cells.setdefault(CellKey(*parts[:3]), {})[parts[3]] = int(value)
    return {key: ArmCounts(**counts) for key, counts in cells.items()}


def _field(key: CellKey, counter: str) -> str:
    parts = (key.context, key.arm, key.drafter_version, counter)
    return "/".join(quote(part, safe=_SAFE) for part in parts)
