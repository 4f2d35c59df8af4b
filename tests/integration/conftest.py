"""A real Ray with Serve in the test's own process, one a module."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray import serve

from cluster.redis_server import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def serve_port() -> Iterator[int]:
    """Start Ray and Serve; yields the port of Serve's HTTP."""
    temp_dir = tempfile.mkdtemp(prefix="bs_", dir="/tmp")  # Ray wants short paths
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=temp_dir,
        )
    port = free_port()
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield port
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        ray.shutdown()
        shutil.rmtree(temp_dir, ignore_errors=True)
