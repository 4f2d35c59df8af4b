"""Small datastores, and lookups in their documents that are slow and obvious."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drafters.api import NoiseKey, SessionContext
from drafters.datastore.builder import Vocabulary, build_datastore
from drafters.datastore.header import Header

SMALL = Vocabulary("small", 50, "f" * 16)

Documents = Sequence[Sequence[int]]


def build(
    folder: Path, documents: Documents, vocabulary: Vocabulary = SMALL, **options: Any
) -> tuple[Path, Header]:
    path = folder / "datastore"
    return path, build_datastore(path, vocabulary, documents, **options)


def context(token_ids: Sequence[int]) -> SessionContext:
    return SessionContext(tuple(token_ids), 1, NoiseKey(0, 0, 0.0))


def slow_continuations(
    documents: Documents, token_ids: Sequence[int], sizes: tuple[int, int], num_tokens: int
) -> tuple[int, list[tuple[int, ...]]]:
    """Scan for the longest ending of ``sizes[1]`` to ``sizes[0]`` tokens and what follows it."""
    for length in range(min(sizes[1], len(token_ids)), sizes[0] - 1, -1):
        ending = list(token_ids[-length:])
        found = [
            tuple(document[start + length : start + length + num_tokens])
            for document in documents
            for start in range(len(document) - length)
            if list(document[start : start + length]) == ending
        ]
        if found:
            return length, found
    return 0, []


def slow_tree(
    continuations: list[tuple[int, ...]], most: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Count every prefix; the most frequent are the nodes, of equals the shorter ones first."""
    counts = Counter(path[: depth + 1] for path in continuations for depth in range(len(path)))
    paths = sorted(counts, key=lambda path: (-counts[path], len(path), path))[:most]
    parents = tuple(paths.index(path[:-1]) if len(path) > 1 else -1 for path in paths)
    return tuple(path[-1] for path in paths), parents


def slow_chain(continuations: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Go on with the most frequent next token of the continuations that agree so far."""
    chain: tuple[int, ...] = ()
    while counts := Counter(
        path[len(chain)]
        for path in continuations
        if path[: len(chain)] == chain and len(path) > len(chain)
    ):
        chain += (min(counts, key=lambda token_id: (-counts[token_id], token_id)),)
    return chain
