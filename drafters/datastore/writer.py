"""Write the file of a datastore, so that it is there whole or not at all.

It is written under another name and renamed when all of it is on disk. Whoever has the file open
that was there before keeps that one.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drafters.datastore.header import (
    BLOCK_BYTES,
    HEADER_BYTES,
    MAGIC,
    Header,
    aligned,
    encode_header,
)
from drafters.errors import DatastoreError
from models.durable import flush


class DatastoreWriter:
    """Takes the sections of a datastore, then the header.

    Args:
        path: Where the datastore shall be; another datastore there is replaced.

    Raises:
        DatastoreError: If the place cannot be written, or there is something else.
    """

    def __init__(self, path: Path) -> None:
        _check_place(path)
        self._path = path
        self._stage = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._num_bytes = 0
        self._crcs: list[int] = []
        try:
            self._file = self._stage.open("wb")
            self._file.write(bytes(HEADER_BYTES))
        except OSError as error:
            raise _cannot_write(path, error) from error

    def write_section(self, section: NDArray[Any]) -> None:
        """Append a section, contiguous in memory, and align what comes next.

        Raises:
            DatastoreError: If the disk takes no more.
        """
        data = section.data.cast("B")
        try:
            self._write(data)
            self._write(memoryview(bytes(aligned(len(data)) - len(data))))
        except OSError as error:
            raise _cannot_write(self._path, error) from error

    def commit(
        self, shards: Iterable[tuple[int, int]], header_of: Callable[[int, str], Header]
    ) -> Header:
        """Write table and header, and put the file in its place when all of it is on disk.

        Args:
            shards: For each shard the numbers of its token ids and of its suffixes.
            header_of: Makes the header from the length of the data and the checksum.

        Raises:
            DatastoreError: If the disk takes no more.
        """
        table = np.array(list(shards), dtype="<i8").tobytes()
        table += np.array(self._crcs, dtype="<u4").tobytes()
        header = header_of(self._num_bytes, hashlib.sha256(table).hexdigest())
        try:
            self._file.write(table)
            self._file.seek(0)
            self._file.write(encode_header(header))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._stage.rename(self._path)
            flush(self._path.parent)
        except OSError as error:
            raise _cannot_write(self._path, error) from error
        return header

    def close(self) -> None:
        """Close the file; if it was not committed nothing is left of it."""
        self._file.close()
        self._stage.unlink(missing_ok=True)

    def _write(self, data: memoryview) -> None:
        while data:
            room = BLOCK_BYTES - self._num_bytes % BLOCK_BYTES
            part, data = data[:room], data[room:]
            if room == BLOCK_BYTES:
                self._crcs.append(0)
            self._crcs[-1] = zlib.crc32(part, self._crcs[-1])
            self._file.write(part)
            self._num_bytes += len(part)


def _check_place(path: Path) -> None:
    """Refuse to replace what is no datastore: one may have left out the name of the output."""
    if not path.parent.is_dir():
        raise DatastoreError(f"cannot write {path}: expected a folder {path.parent}, found none")
    if not path.exists():
        return
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return
    raise DatastoreError(f"{path} is no datastore and is not replaced: name another output")


def _cannot_write(path: Path, error: OSError) -> DatastoreError:
    return DatastoreError(f"cannot write {path}: {error.strerror or error}")
