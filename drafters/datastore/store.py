"""Open a datastore and find in it what followed a sequence of tokens."""

from __future__ import annotations

import hashlib
import mmap
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drafters.datastore.header import (
    BLOCK_BYTES,
    HEADER_BYTES,
    aligned,
    decode_header,
    separator_of,
)
from drafters.datastore.shard import Shard
from drafters.errors import DatastoreError

CHECKED_BYTES = 256 << 20
"""Data whose checksums are looked at whenever a datastore is opened: about 0.2 s."""


@dataclass(frozen=True, slots=True)
class Match:
    """Where a context's last tokens occur and are followed by another one.

    Attributes:
        length: How many tokens; 0 if none were found.
        ranks: For each shard the ranks of the occurrences.
    """

    length: int
    ranks: tuple[range, ...]

    @property
    def num_occurrences(self) -> int:
        """Occurrences in all shards."""
        return sum(len(ranks) for ranks in self.ranks)


NO_MATCH = Match(0, ())


class Datastore:
    """A datastore, memory-mapped: opened at once, and larger than memory if it likes.

    Opening checks the header, the length of the file and the table of checksums, and the data
    itself up to ``checked_bytes`` of it, evenly spread.

    Args:
        path: The file.
        checked_bytes: Most data to check; None checks all of it.
        on_checked: Called with the bytes checked so far.

    Raises:
        DatastoreError: If it cannot be read, is no datastore, is cut short or was altered.
    """

    def __init__(
        self,
        path: Path,
        checked_bytes: int | None = CHECKED_BYTES,
        on_checked: Callable[[int], None] = lambda num_bytes: None,
    ) -> None:
        self._where = str(path)
        try:
            with path.open("rb") as file:
                self.header = decode_header(file.read(HEADER_BYTES), self._where)
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise DatastoreError(
                f"cannot read the datastore {path}: {error.strerror or error}"
            ) from error
        self._check_length()
        sizes, crcs = self._table()
        self._check_data(crcs, checked_bytes, on_checked)
        self.separator = separator_of(self.header.token_dtype)
        self._shards = self._open_shards(sizes)

    def longest_match(self, token_ids: Sequence[int], least: int) -> Match:
        """Find the longest ending of ``token_ids`` that occurs and is followed by a token.

        Args:
            token_ids: At most ``sort_depth - 1`` of them.
            least: Shortest ending that counts, at least 1.
        """
        query = self._encode(token_ids)
        length = least - 1
        for shard in self._shards:
            length = shard.longest(query, length)
        if length < least:
            return NO_MATCH
        query = query[-length * self.header.token_bytes :]
        return Match(length, tuple(shard.find(query) for shard in self._shards))

    def continuations(self, match: Match, num_tokens: int, most: int) -> NDArray[np.int64]:
        """Return what followed at the occurrences of a match, in order of the tokens.

        Where there are more than ``most`` occurrences they are thinned out evenly in the order of
        the suffixes, so that frequent continuations keep their shares.

        Returns:
            ``[num_tokens, num_continuations]``; after the end of a document comes ``separator``.
        """
        total = match.num_occurrences
        chosen = np.arange(total) if total <= most else np.arange(most) * total // most
        rows, first = [], 0
        for shard, ranks in zip(self._shards, match.ranks, strict=True):
            if len(ranks):
                low, high = np.searchsorted(chosen, (first, first + len(ranks)))
                found = shard.suffixes[chosen[low:high] + (ranks.start - first)]
                starts = found.astype(np.int64) + match.length
                # Beyond a shard's last token, which is a separator, that token is read again.
                places = starts[:, None] + np.arange(num_tokens)
                rows.append(shard.token_ids.take(places, mode="clip"))
                first += len(ranks)
        return self._in_order(np.concatenate(rows, dtype=self.header.token_dtype))

    def _in_order(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Sort rows of token ids, and let nothing but separators follow one."""
        is_end = rows == self.separator
        if is_end.any():
            rows[np.logical_or.accumulate(is_end, axis=1)] = self.separator
        as_bytes = rows.view(f"S{rows.shape[1] * rows.itemsize}").ravel()
        order = np.argsort(as_bytes, kind="stable")  # quick, as they come in sorted runs
        return np.ascontiguousarray(rows[order].T, dtype=np.int64)

    def _encode(self, token_ids: Sequence[int]) -> bytes:
        """Return the ids after the last one that no document can have, as bytes of the file."""
        known = len(token_ids)
        for index, token_id in enumerate(token_ids, start=1):
            if not 0 <= token_id < self.header.vocab_size:
                known = len(token_ids) - index
        return np.array(token_ids[len(token_ids) - known :], self.header.token_dtype).tobytes()

    def _check_length(self) -> None:
        expected = self.header.file_bytes
        if len(self._data) != expected:
            wrong = "is cut short" if len(self._data) < expected else "is too long"
            raise DatastoreError(
                f"{self._where} {wrong}: expected {expected} bytes, found {len(self._data)}"
            )

    def _table(self) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Return for each shard its numbers of token ids and suffixes, and each block's CRC-32."""
        header = self.header
        table_at = HEADER_BYTES + header.data_bytes
        found = hashlib.sha256(self._data[table_at:]).hexdigest()
        if found != header.checksum:
            raise DatastoreError(
                f"{self._where} is corrupt: expected a table with checksum {header.checksum[:16]}, "
                f"found {found[:16]}"
            )
        sizes = np.frombuffer(self._data, "<i8", 2 * header.num_shards, table_at).reshape(-1, 2)
        crcs = np.frombuffer(self._data, "<u4", header.num_blocks, table_at + sizes.nbytes)
        num_tokens = int(sizes[:, 1].sum())
        if num_tokens != header.num_tokens:
            raise DatastoreError(
                f"{self._where} has a wrong table: expected suffixes of {header.num_tokens} "
                f"tokens, found {num_tokens}"
            )
        return sizes, crcs

    def _check_data(
        self, crcs: NDArray[np.uint32], checked_bytes: int | None, on_checked: Callable[[int], None]
    ) -> None:
        num_checked = len(crcs)
        if checked_bytes is not None:
            num_checked = min(num_checked, max(2, checked_bytes // BLOCK_BYTES))
        end = HEADER_BYTES + self.header.data_bytes
        for done, block in enumerate(np.linspace(0, len(crcs) - 1, num_checked).astype(int)):
            start = HEADER_BYTES + int(block) * BLOCK_BYTES
            found = zlib.crc32(self._data[start : min(start + BLOCK_BYTES, end)])
            if found != crcs[block]:
                raise DatastoreError(
                    f"{self._where} is corrupt: expected CRC-32 {crcs[block]:08x} for the data "
                    f"from byte {start} on, found {found:08x}"
                )
            on_checked((done + 1) * BLOCK_BYTES)

    def _open_shards(self, sizes: NDArray[np.int64]) -> list[Shard]:
        header, offset, shards = self.header, HEADER_BYTES, []
        for num_tokens, num_suffixes in sizes.tolist():
            shards.append(Shard(self._data, offset, num_tokens, num_suffixes, header.token_dtype))
            offset += aligned(header.token_bytes * num_tokens) + aligned(4 * num_suffixes)
        return shards
