"""Names of keys and fields in Redis, and what they hold. Pure; schema version 2.

All keys of one target model share a hash tag, so they live in one slot and a script may touch them
together, also in a Redis Cluster; and a failover rolls all of them back together::

    <prefix>:{<model>}:schema                    string   version of this schema
    <prefix>:{<model>}:generation                string   how often the counters were reset
    <prefix>:{<model>}:epochs:<generation>       hash     start of an epoch -> its revision
    <prefix>:{<model>}:counts:<gen.>:<epoch>     hash     cell -> counters; expires
    <prefix>:{<model>}:seen:<replica>:<inc.>     string   highest sequence applied; expires later

A revision is another text after every change of its epoch. A cell is ``context/arm/drafter
version``, each part quoted as in URLs; its counters are integers in the order of ``COUNTERS``, with
blanks between them. In one field a cell takes a fifth of the memory that a field for each counter
took, and a batch as much less of the server's time. A later version may add counters at the end:
they are kept, and left out when read.

Schema 1 had no generations, ``epochs`` and ``counts:<epoch>``, and a field for each counter. It is
taken over epoch by epoch, each one atomically (``policy_service.redis_pool.scripts``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from urllib.parse import quote, unquote

from policy_service.api import ArmCounts, CellKey
from policy_service.errors import StoreSchemaError

SCHEMA_VERSION = "2"

COUNTERS = tuple(field.name for field in fields(ArmCounts))
LARGEST = 2**53
"""Largest counter: scripts add numbers in double precision."""
_NOTHING = " ".join("0" * len(COUNTERS))
_SAFE = "|=:,.~"


class Keys:
    """Names of the keys of one target model."""

    def __init__(self, prefix: str, target_model: str) -> None:
        self._base = f"{prefix}:{{{slug(target_model)}}}"
        self.schema = f"{self._base}:schema"
        self.generation = f"{self._base}:generation"
        self.old_epochs = f"{self._base}:epochs"

    def epochs(self, generation: int) -> str:
        """Return the key of the revisions of a generation's epochs."""
        return f"{self._base}:epochs:{generation}"

    def counts(self, generation: int, epoch: int | str) -> str:
        """Return the key of an epoch's counters."""
        return f"{self._base}:counts:{generation}:{epoch}"

    def old_counts(self, epoch: str) -> str:
        """Return the key of an epoch's counters in schema 1."""
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


def row_of(counts: ArmCounts) -> str:
    """Return a cell's counters as they are kept."""
    return (
        f"{counts.pulls} {counts.reward_tokens} {counts.drafted} {counts.verified} "
        f"{counts.accepted} {counts.step_us} {counts.failed} {counts.reward_micros}"
    )


def increments(deltas: Mapping[CellKey, ArmCounts]) -> list[str]:
    """Return field, counters, field, counters, ... of a batch; cells without any are left out."""
    return [
        text
        for key, counts in deltas.items()
        if (row := row_of(counts)) != _NOTHING
        for text in (field_of(key), row)
    ]


def parse_cells(texts: Iterable[str]) -> dict[CellKey, ArmCounts]:
    """Read field, counters, field, counters, ... of an epoch.

    Raises:
        StoreSchemaError: If one of them has another form.
    """
    items = iter(texts)
    return {parse_field(field): parse_counters(field, text) for field, text in zip(items, items)}  # noqa: B905  # pairs


def parse_counters(field: str, text: str) -> ArmCounts:
    """Read a cell's counters; those of later versions are left out.

    Raises:
        StoreSchemaError: If they are no integers.
    """
    try:
        return ArmCounts(*[int(part) for part in text.split(" ")][: len(COUNTERS)])
    except ValueError:
        raise StoreSchemaError(
            f"a cell holds integers, got {text[:100]!r} for {field[:100]!r}"
        ) from None


@lru_cache(maxsize=2**16)
def field_of(key: CellKey) -> str:
    """Return the field of a cell."""
    return "/".join(quote(part, safe=_SAFE) for part in (key.context, key.arm, key.drafter_version))


@lru_cache(maxsize=2**16)
def parse_field(field: str) -> CellKey:
    """Read what ``field_of`` gave.

    Raises:
        StoreSchemaError: If it has another form.
    """
    parts = field.split("/")
    if len(parts) != 3:
        raise StoreSchemaError(f"a cell is context/arm/version, got {field[:100]!r}")
    if "%" in field:
        parts = [unquote(part) for part in parts]
    return CellKey(*parts)


def parse_integer(key: str, text: str) -> int:
    """Read a number that is no counter.

    Raises:
        StoreSchemaError: If it is none.
    """
    if not text.isdecimal():
        raise StoreSchemaError(f"{key} holds {text[:100]!r}, expected an integer")
    return int(text)


def wrong_schema(key: str, found: object) -> StoreSchemaError:
    """Return the error for data of a schema that this version does not know."""
    return StoreSchemaError(
        f"{key} says schema {found!r}, this version knows {SCHEMA_VERSION!r}; nothing was written"
    )


def corrupt(name: object) -> StoreSchemaError:
    """Return the error for a key or field that is not what it should be."""
    return StoreSchemaError(f"not an integer in Redis: {name!r}; nothing was written")
