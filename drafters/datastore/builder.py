"""Build a datastore from documents that come one after the other.

Memory does not grow with the corpus: once a shard's worth of tokens has come, its suffixes are
sorted and it is written. A shard holds ``shard_tokens`` places of the corpus (the last one fewer)
and then once more the ``sort_depth`` places that follow, whose suffixes are the next shard's: so
where the corpus was cut makes no difference to what is found, up to that length of match and
continuation together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from drafters.datastore.header import Header, separator_of, token_dtype
from drafters.datastore.suffix_sort import sorted_suffixes
from drafters.datastore.writer import DatastoreWriter
from drafters.errors import DatastoreError

SORT_DEPTH = 32
"""Enough for a match of 16 tokens, as published, and the 10 after it."""
SHARD_TOKENS = 1 << 24
"""Building shards of this size takes about 1.2 GB of memory."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The token ids that a tokenizer makes.

    Attributes:
        name: The model's name, for people.
        size: Token ids are smaller.
        fingerprint: Of the tokenizer, as ``models.tokenizer`` takes it.
    """

    name: str
    size: int
    fingerprint: str


class DatastoreBuilder:
    """Builds one datastore. Use it as a context and ``finish`` it, else nothing is left of it.

    Args:
        path: Where the datastore shall be; another datastore there is replaced.
        vocabulary: Of the tokenizer that makes the ids.
        sort_depth: One token more than the longest match that can be looked for; at least 2.
        shard_tokens: Most tokens whose suffixes are sorted at once. A search looks into every
            shard, so that few large ones are searched faster.
        on_shard: Called with the number of tokens so far before a shard is sorted.

    Raises:
        DatastoreError: If the place cannot be written, there is something else, or a size is wrong.
    """

    def __init__(
        self,
        path: Path,
        vocabulary: Vocabulary,
        *,
        sort_depth: int = SORT_DEPTH,
        shard_tokens: int = SHARD_TOKENS,
        on_shard: Callable[[int], None] = lambda num_tokens: None,
    ) -> None:
        if sort_depth < 2:
            raise DatastoreError(f"sort_depth is at least 2, got {sort_depth}")
        if not 1 <= shard_tokens <= 1 << 30:
            raise DatastoreError(f"shard_tokens is 1 to {1 << 30}, got {shard_tokens}")
        self._path, self._vocabulary = path, vocabulary
        self._sort_depth, self._shard_tokens = sort_depth, shard_tokens
        self._on_shard = on_shard
        self._file_dtype = token_dtype(vocabulary.size)
        self._dtype = np.dtype(self._file_dtype).newbyteorder("=")
        self._separator = separator_of(self._file_dtype)
        self._pending: list[NDArray[Any]] = []
        self._num_pending = 0
        self._num_documents = self._num_tokens = 0
        self._is_inside_document = False
        self._shards: list[tuple[int, int]] = []
        self._writer = DatastoreWriter(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.close()

    @property
    def num_tokens(self) -> int:
        """Tokens so far."""
        return self._num_tokens

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens to the current document.

        Raises:
            DatastoreError: If an id is no token of the vocabulary, or the disk takes no more.
        """
        self.check(token_ids)
        if not len(token_ids):
            return
        self._num_tokens += len(token_ids)
        self._is_inside_document = True
        self._append(np.array(token_ids, dtype=self._dtype))

    def check(self, token_ids: Sequence[int]) -> None:
        """Check that all ids are tokens of the vocabulary.

        Raises:
            DatastoreError: If not.
        """
        size = self._vocabulary.size
        for wrong in (min(token_ids, default=0), max(token_ids, default=0)):
            if not 0 <= wrong < size:
                raise DatastoreError(
                    f"expected token ids of 0..{size - 1} as {self._vocabulary.name}'s tokenizer "
                    f"makes them, found {wrong}"
                )

    def end_document(self) -> None:
        """End the current document: no match and no continuation goes beyond it."""
        if not self._is_inside_document:
            return
        self._is_inside_document = False
        self._num_documents += 1
        self._append(np.array([self._separator], dtype=self._dtype))

    def finish(self) -> Header:
        """Write what is left and put the datastore in its place.

        Raises:
            DatastoreError: If no token has come, or the disk takes no more.
        """
        self.end_document()
        if not self._num_tokens:
            raise DatastoreError(f"nothing to build {self._path} from: expected tokens, found none")
        if self._num_pending:
            self._write_shard(np.concatenate(self._pending), self._num_pending)
        return self._writer.commit(self._shards, self._header)

    def _append(self, token_ids: NDArray[Any]) -> None:
        self._pending.append(token_ids)
        self._num_pending += len(token_ids)
        needed = self._shard_tokens + self._sort_depth
        if self._num_pending < needed:
            return
        joined = np.concatenate(self._pending)
        while len(joined) >= needed:
            self._write_shard(joined[:needed], self._shard_tokens)
            joined = joined[self._shard_tokens :]
        self._pending, self._num_pending = [joined.copy()], len(joined)

    def _write_shard(self, token_ids: NDArray[Any], num_own: int) -> None:
        self._on_shard(self._num_tokens)
        token_ids = np.append(token_ids, self._dtype.type(self._separator))
        suffixes = sorted_suffixes(token_ids, num_own, self._separator, self._sort_depth)
        self._writer.write_section(token_ids.astype(self._file_dtype))
        self._writer.write_section(suffixes.astype("<i4"))
        self._shards.append((len(token_ids), len(suffixes)))

    def _header(self, data_bytes: int, checksum: str) -> Header:
        return Header(
            tokenizer_name=self._vocabulary.name,
            tokenizer_fingerprint=self._vocabulary.fingerprint,
            vocab_size=self._vocabulary.size,
            token_dtype=self._file_dtype,
            sort_depth=self._sort_depth,
            num_documents=self._num_documents,
            num_tokens=self._num_tokens,
            num_shards=len(self._shards),
            data_bytes=data_bytes,
            checksum=checksum,
        )


def build_datastore(
    path: Path, vocabulary: Vocabulary, documents: Iterable[Sequence[int]], **options: Any
) -> Header:
    """Build a datastore of whole documents; ``options`` are the builder's.

    Raises:
        DatastoreError: If it cannot be built.
    """
    with DatastoreBuilder(path, vocabulary, **options) as builder:
        for document in documents:
            builder.extend(document)
            builder.end_document()
        return builder.finish()
