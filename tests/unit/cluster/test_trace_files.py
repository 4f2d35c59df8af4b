"""A trace comes back from its file as it was, and what is no trace is refused."""

from __future__ import annotations

import json
import pickle
import zipfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import TraceError
from cluster.traces.files import VERSION, read_trace, write_trace
from cluster.traces.format import Trace
from tests.unit.cluster.random_traces import random_trace


@pytest.fixture
def trace() -> Trace:
    return random_trace(1)


def rewritten(path: Path, **changes: Any) -> None:
    """Change entries of a file's header."""
    with np.load(path) as archive:
        arrays: dict[str, Any] = dict(archive)
    header = json.loads(str(arrays["header"])) | changes
    arrays["header"] = np.array(json.dumps(header))
    np.savez_compressed(path, **arrays)


def test_round_trip(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "a trace"
    write_trace(path, trace)
    read = read_trace(path)
    assert replace(read, drafts=trace.drafts) == trace
    for name, drafts in trace.drafts.items():
        for one in fields(drafts):
            expected, found = getattr(drafts, one.name), getattr(read.drafts[name], one.name)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    assert [file.name for file in tmp_path.iterdir()] == ["a trace"]


def test_a_newer_version_is_refused(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    write_trace(path, trace)
    rewritten(path, version=VERSION + 1)
    with pytest.raises(TraceError, match=f"version {VERSION + 1}; .* reads up to {VERSION}"):
        read_trace(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "something else"},
        {"version": "1"},
        {"requests": []},
        {"max_size": 7},
        {"versions": {"prompt_lookup": "1", "rest": "1"}},
        {"step_times": {"rows": [1]}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_header_that_does_not_fit_is_refused(
    changes: dict[str, Any], trace: Trace, tmp_path: Path
) -> None:
    path = tmp_path / "trace.npz"
    write_trace(path, trace)
    rewritten(path, **changes)
    with pytest.raises(TraceError, match="no trace, or corrupt"):
        read_trace(path)


def test_corrupt_bytes_are_found(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    write_trace(path, trace)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        inside = [
            info.header_offset + 120 for info in archive.infolist() if info.compress_size > 99
        ]
    for broken in [
        whole[: len(whole) // 2],
        b"",
        b"not a trace\n",
        *(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in inside),
    ]:
        path.write_bytes(broken)
        with pytest.raises(TraceError):
            read_trace(path)


def test_files_that_are_not_there(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot read the trace"):
        read_trace(tmp_path / "none.npz")
    with pytest.raises(TraceError, match="cannot write the trace"):
        write_trace(tmp_path / "no folder" / "trace.npz", trace)


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(TraceError("gone")))
    assert (type(error), str(error)) == (TraceError, "gone")
