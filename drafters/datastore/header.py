"""The file format of a datastore: what its header says, and what is checked of it.

    header    4,096 bytes: magic, format version, length and SHA-256 of a JSON text, the JSON text
    data      for each shard its token ids, then its suffixes; each section begins at a multiple
              of 8 bytes
    table     for each shard (number of token ids, number of suffixes) as int64, then the CRC-32 of
              each MiB of the data as uint32; the header holds its SHA-256

Token ids are kept most significant byte first, so that comparing bytes compares token ids: 2 bytes
each, or 4 where the vocabulary needs them. The largest number of that width is no token but ends a
document, so 2 bytes do for vocabularies of up to 65,535 ids. Suffixes are positions in the shard,
int32, in the order of the tokens that begin there; the order looks at ``sort_depth`` tokens.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from drafters.errors import DatastoreError

MAGIC = b"BSDSTORE"
FORMAT_VERSION = 1
HEADER_BYTES = 4096
BLOCK_BYTES = 1 << 20
"""Data that one CRC-32 covers."""
ALIGNMENT = 8

_PREAMBLE = struct.Struct("<8sII32s")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Header:
    """What a datastore says of itself.

    Attributes:
        tokenizer_name: Model whose tokenizer made the ids, for people.
        tokenizer_fingerprint: Of that tokenizer, as ``models.tokenizer`` takes it.
        vocab_size: Token ids are smaller.
        token_dtype: Type of the token ids in the file, ``>u2`` or ``>u4``.
        sort_depth: Tokens that the order of the suffixes looks at.
        num_documents: Documents in it.
        num_tokens: Tokens in it, ends of documents not counted.
        num_shards: Shards, each with an order of its own.
        data_bytes: Length of the data.
        checksum: SHA-256 of the table, which holds a checksum of all data.
    """

    tokenizer_name: str
    tokenizer_fingerprint: str
    vocab_size: int
    token_dtype: str
    sort_depth: int
    num_documents: int
    num_tokens: int
    num_shards: int
    data_bytes: int
    checksum: str

    @property
    def token_bytes(self) -> int:
        """Bytes of one token id in the file."""
        return np.dtype(self.token_dtype).itemsize

    @property
    def num_blocks(self) -> int:
        """Blocks of the data that have a CRC-32 each."""
        return -(-self.data_bytes // BLOCK_BYTES)

    @property
    def table_bytes(self) -> int:
        """Length of the table."""
        return 16 * self.num_shards + 4 * self.num_blocks

    @property
    def file_bytes(self) -> int:
        """Length of the whole file."""
        return HEADER_BYTES + self.data_bytes + self.table_bytes


def token_dtype(vocab_size: int) -> str:
    """Return the type that holds a vocabulary's ids and one number more, the end of a document.

    >>> token_dtype(65_535), token_dtype(65_536)
    ('>u2', '>u4')
    """
    return ">u2" if vocab_size < 1 << 16 else ">u4"


def separator_of(dtype: str) -> int:
    """Return the number that ends a document in the file; no token has it."""
    return int(np.iinfo(np.dtype(dtype)).max)


def aligned(num_bytes: int) -> int:
    """Return the next multiple of the alignment of sections.

    >>> aligned(9)
    16
    """
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def encode_header(header: Header) -> bytes:
    """Return the header as the file begins with it."""
    values = {**asdict(header), "tokenizer_name": header.tokenizer_name[:_LONGEST_NAME]}
    text = json.dumps(values).encode("ascii")
    digest = hashlib.sha256(text).digest()
    start = _PREAMBLE.pack(MAGIC, FORMAT_VERSION, len(text), digest)
    return (start + text).ljust(HEADER_BYTES, b"\0")


def decode_header(data: bytes, where: str) -> Header:
    """Return the header in the first bytes of a file.

    Args:
        data: The first ``HEADER_BYTES`` bytes, fewer if the file is shorter.
        where: The file, to begin errors with.

    Raises:
        DatastoreError: If this is no datastore, one of another version, or altered.
    """
    if not data.startswith(MAGIC):
        raise DatastoreError(
            f"{where} is no datastore: expected it to begin with {MAGIC!r}, "
            f"found {data[: len(MAGIC)]!r}"
        )
    if len(data) < HEADER_BYTES:
        raise DatastoreError(
            f"{where} is cut short: expected a header of {HEADER_BYTES} bytes, found {len(data)}"
        )
    _, version, length, digest = _PREAMBLE.unpack_from(data)
    if version != FORMAT_VERSION:
        raise DatastoreError(
            f"{where} has another format: expected version {FORMAT_VERSION}, found {version}; "
            "build it again"
        )
    text = data[_PREAMBLE.size : _PREAMBLE.size + length]
    found = hashlib.sha256(text).digest()
    if found != digest or any(data[_PREAMBLE.size + length :]):
        raise DatastoreError(
            f"{where} has an altered header: expected checksum {digest.hex()[:16]}, "
            f"found {found.hex()[:16]}"
        )
    try:
        values = json.loads(text)
    except ValueError as error:
        raise DatastoreError(f"{where} has a wrong header: expected JSON, {error}") from error
    return _header_of(values, where)


def _header_of(values: Any, where: str) -> Header:
    """Check what only a faulty writer gets wrong: the checksum has vouched for the rest."""
    types: dict[str, type] = {
        field.name: int if field.type == "int" else str for field in fields(Header)
    }
    items = values.items() if isinstance(values, dict) else ()
    found = {name: type(value) for name, value in items}
    if found != types:
        raise DatastoreError(
            f"{where} has a wrong header: expected {_named(types)}, found {_named(found)}"
        )
    header = Header(**values)
    dtype = token_dtype(header.vocab_size)
    if header.token_dtype != dtype:
        raise DatastoreError(
            f"{where} has a wrong header: expected tokens as {dtype} for {header.vocab_size} ids, "
            f"found {header.token_dtype!r}"
        )
    for name in ("vocab_size", "sort_depth", "num_documents", "num_tokens", "num_shards"):
        if values[name] < 1:
            raise DatastoreError(
                f"{where} has a wrong header: expected {name} of at least 1, found {values[name]}"
            )
    return header


def _named(types: dict[str, type]) -> str:
    return ", ".join(f"{name}: {kind.__name__}" for name, kind in sorted(types.items()))


def check_compatible(header: Header, fingerprint: str, vocab_size: int) -> None:
    """Check that a datastore's token ids mean to a model what they meant when it was built.

    Args:
        header: The datastore's.
        fingerprint: Of the model's tokenizer, as ``models.tokenizer`` takes it.
        vocab_size: The model's; it may be larger than its tokenizer's.

    Raises:
        DatastoreError: If not.
    """
    if header.tokenizer_fingerprint != fingerprint:
        raise DatastoreError(
            f"the datastore was built with another tokenizer: expected fingerprint "
            f"{fingerprint[:16]}, found {header.tokenizer_fingerprint[:16]} "
            f"(of {header.tokenizer_name}); build it again with the model that is served"
        )
    if header.vocab_size > vocab_size:
        raise DatastoreError(
            f"the datastore has more token ids than the model: expected at most {vocab_size}, "
            f"found {header.vocab_size}"
        )
