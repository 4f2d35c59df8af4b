"""One node of a local Ray, as a child process with all that belongs to it.

Nothing outside loopback can reach it. It ends with the thread that started it, however that ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.errors import RayStartError
from cluster.nodes.raylet import STARTED
from cluster.processes import command_line, end_all, in_session
from cluster.ray_runtime import node_environment
from models.child_process import die_with_parent

ADDRESS = "127.0.0.1"
START_TIMEOUT_S = 120.0
_POLL_S = 0.1
OBJECT_STORE_BYTES = 100_000_000
_PATIENCE = {
    # Many nodes share this machine's cores: what is slow to answer here has not failed.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a node is.

    Attributes:
        name: Of the node, for people.
        role: What it is for; its label ``role``.
        num_cpus: CPUs that Ray believes it has.
        labels: Further labels.
        proxy_port: Port of Serve's HTTP proxy there; None for the head's.
        environment: Further variables of all its processes.
        params: Further fields of Ray's ``RayParams``.
    """

    name: str
    role: str
    num_cpus: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    proxy_port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


class LocalNode:
    """A node that has been started; wait until it has joined.

    Args:
        spec: What it is.
        head_address: The head's ``host:port``; None makes this the head.
        port: The head's own port.
    """

    def __init__(self, spec: NodeSpec, head_address: str | None = None, port: int = 0) -> None:
        self.spec = spec
        self._place = head_address, port
        self._temp_dir = Path(tempfile.mkdtemp(prefix="bn-", dir="/tmp"))  # Ray wants short paths
        self._output = self._temp_dir / "output.txt"
        order = self._temp_dir / "order.json"
        order.touch(mode=0o600)  # it may hold a password
        order.write_text(json.dumps(_order(spec, head_address, port, self._temp_dir)))
        with self._output.open("wb") as output, order.open("rb") as stdin:
            self._process = subprocess.Popen(
                die_with_parent([sys.executable, "-m", "cluster.nodes.raylet"]),
                env={**os.environ, **node_environment(), **_environment(spec)},
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pids(self, name: str = "") -> list[int]:
        """Return its processes whose command line contains ``name``."""
        return sorted(pid for pid in self._processes() if name in command_line(pid))

    def again(self) -> LocalNode:
        """Return another node of the same kind in the same place."""
        return LocalNode(self.spec, *self._place)

    def kill(self) -> None:
        """End all its processes at once, as if the machine lost its power."""
        end_all(self._processes(), 0.0)
        self._process.wait()
        end_all(self._processes(), 0.0)  # what was being started meanwhile
        shutil.rmtree(self._temp_dir, ignore_errors=True)

    def pause(self) -> None:
        """Let all its processes stand still: it neither answers nor closes a connection."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _processes(self) -> dict[int, str]:
        """Return its processes, also those whose parents have ended."""
        return in_session(self._process.pid)

    def _signal(self, number: int) -> None:
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait_until_started(self) -> None:
        """Wait until it runs.

        Raises:
            RayStartError: If it does not start.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            output = self._output.read_text(errors="replace")
            if STARTED in output:
                return
            if self._process.poll() is not None:
                last = output.strip().rpartition("\n")[2]
                raise RayStartError(f"node {self.spec.name} ended at once: {last}")
            time.sleep(_POLL_S)
        raise RayStartError(f"node {self.spec.name} did not start in {START_TIMEOUT_S:g} s")


def _order(spec: NodeSpec, head_address: str | None, port: int, temp_dir: Path) -> dict[str, Any]:
    """Return what ``cluster.nodes.raylet`` is told."""
    params = {
        "num_cpus": spec.num_cpus,
        "labels": {"role": spec.role, **spec.labels},
        "object_store_memory": OBJECT_STORE_BYTES,
        "temp_dir": str(temp_dir),
        **spec.params,
    }
    place = {"port": port} if head_address is None else {"address": head_address}
    return {"head": head_address is None, **place, "params": params}


def _environment(spec: NodeSpec) -> dict[str, str]:
    if spec.proxy_port is None:
        return {**_PATIENCE, **spec.environment}
    port = {"RAY_SERVE_WORKER_PROXY_HTTP_PORT": str(spec.proxy_port)}
    return {**_PATIENCE, **port, **spec.environment}
