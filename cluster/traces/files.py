"""The file of a trace: a NumPy archive of a header in JSON and the arrays of each drafter."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import TraceError
from cluster.traces.format import Drafts, Trace, TracedRequest
from policy_service.api import RequestFeatures
from policy_service.step_times import StepTimes

FORMAT = "banditserve-trace"
VERSION = 1
"""Version of the file's format; files of a higher one are refused."""

_CORRUPT = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
)


def write_trace(path: Path, trace: Trace) -> None:
    """Write a trace; the file appears whole or not at all.

    Raises:
        TraceError: If it cannot be written.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": trace.model,
        "machine": trace.machine,
        "temperature": trace.temperature,
        "max_tokens": trace.max_tokens,
        "max_size": trace.max_size,
        "step_times": asdict(trace.step_times),
        "versions": dict(trace.versions),
        "requests": [asdict(request) for request in trace.requests],
    }
    arrays: dict[str, Any] = {"header": np.array(json.dumps(header))}
    for name, drafts in trace.drafts.items():
        arrays |= {f"{name}.{one.name}": getattr(drafts, one.name) for one in fields(drafts)}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
        temporary.replace(path)
    except OSError as error:
        raise TraceError(f"cannot write the trace {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        TraceError: If it cannot be read, is no trace, is corrupt, or of a newer version.
    """
    try:
        # Opened here, because NumPy leaves a file open that is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            header = _header(path, archive)
            return _trace(header, archive)
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror or error}") from error
    except _CORRUPT as error:
        raise TraceError(f"{path} is no trace, or corrupt: {error}") from error


def _header(path: Path, archive: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(str(archive["header"]))
    if header["format"] != FORMAT:
        raise ValueError(f"expected format {FORMAT!r}, found {header['format']!r}")
    if header["version"] > VERSION:
        raise TraceError(
            f"{path} is of version {header['version']}; this version of banditserve reads up to "
            f"{VERSION}"
        )
    return header


def _trace(header: Mapping[str, Any], archive: Mapping[str, NDArray[Any]]) -> Trace:
    times = header["step_times"]
    return Trace(
        model=header["model"],
        machine=header["machine"],
        temperature=header["temperature"],
        max_tokens=header["max_tokens"],
        max_size=header["max_size"],
        step_times=StepTimes(
            tuple(times["rows"]), tuple(times["ms"]), times["sequence_ms"], times["cached_token_ms"]
        ),
        versions=header["versions"],
        requests=tuple(
            TracedRequest(**{**row, "features": RequestFeatures(**row["features"])})
            for row in header["requests"]
        ),
        drafts={
            name: Drafts(**{one.name: archive[f"{name}.{one.name}"] for one in fields(Drafts)})
            for name in header["versions"]
        },
    )
