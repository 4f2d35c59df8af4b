"""What Ray's head knows of nodes: which there are, and which will soon be gone.

Asked by a process of its own, ``python -m cluster.nodes.known``: Ray reads its token once, when it
is imported, which may have been before there was one.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from typing import Any

from cluster.drain import ask
from cluster.errors import DrillError
from cluster.ray_runtime import node_environment

_TIMEOUT_S = 60.0


def live_nodes(address: str) -> dict[str, dict[str, str]]:
    """Return the labels of every live node by its id.

    Args:
        address: The head's ``host:port``.

    Raises:
        DrillError: If the head does not answer.
    """
    nodes: dict[str, dict[str, str]] = json.loads(_ask("list", address))
    return nodes


def drain_node(address: str, name: str, notice_s: float) -> None:
    """Drain the node with this label ``name``, as ``cluster.drain`` does for a pod.

    Args:
        address: The head's ``host:port``.
        name: The node's label.
        notice_s: When it will be gone, in seconds from now.

    Raises:
        DrillError: If Ray knows no such node or does not drain it.
    """
    _ask("drain", address, name, str(notice_s))


def _ask(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cluster.nodes.known", *words],
        env={**os.environ, **node_environment()},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        raise DrillError(f"Ray's head at {words[1]} does not {words[0]}: {last}")
    return done.stdout


def main() -> None:
    """Answer ``list ADDRESS`` or do ``drain ADDRESS NAME SECONDS``."""
    command, address = sys.argv[1:3]
    if command == "list":
        print(json.dumps(_live(_module("ray._raylet").GcsClient(address=address))))
        return
    name, notice_s = sys.argv[3], float(sys.argv[4])
    if not ask(address, lambda info: dict(info.labels).get("name") == name, notice_s, "a drill"):
        sys.exit(1)  # the last line on standard error says why


def _live(gcs: Any) -> dict[str, dict[str, str]]:
    alive = _module("ray.core.generated.gcs_pb2").GcsNodeInfo.ALIVE
    return {
        str(node_id.hex()): dict(info.labels)
        for node_id, info in gcs.get_all_node_info(timeout=5).items()
        if info.state == alive
    }


def _module(name: str) -> Any:
    """Import a module of Ray whose types are unknown."""
    return importlib.import_module(name)


if __name__ == "__main__":
    main()
