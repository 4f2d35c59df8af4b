"""Empty this node before it goes: ``python -m cluster.drain``, for a pod's ``preStop`` hook.

Tells Ray that the node will be gone at a deadline, so that Serve starts replacements of its
replicas elsewhere, sends them nothing more and lets what they do end; then waits until they have
gone.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOST_AFTER_S = 30.0
"""After Ray's head has been away for so long nothing will be moved: the whole cluster goes."""
_POLL_S = 1.0
_REPLICA = "ServeReplica:"

_logger = logging.getLogger(__name__)


def ask(address: str, is_it: Callable[[Any], bool], deadline_s: float, reason: str) -> bool:
    """Ask Ray to drain a node. Return whether it does; the reason why not is logged.

    Args:
        address: Ray's head, ``host:port``.
        is_it: Whether a node is the one, from what Ray knows of it (``GcsNodeInfo``).
        deadline_s: When the node will be gone, in seconds from now.
        reason: Why, in words; Ray shows it.
    """
    try:
        gcs = _gcs(address)
        node_id = _node_id(gcs, is_it)
        if node_id is None:
            _logger.warning("Ray at %s knows no such live node", address)
            return False
        accepted, why = gcs.drain_node(
            node_id,
            _module("ray.core.generated.autoscaler_pb2").DRAIN_NODE_REASON_PREEMPTION,
            reason,
            int((time.time() + deadline_s) * 1000),
        )
    except Exception as error:  # a boundary: without Ray's head there is nothing to wait for
        _logger.warning("Ray at %s cannot be asked to drain: %s", address, error)
        return False
    if not accepted:
        _logger.warning("Ray does not drain %s: %s", node_id, why)
    return bool(accepted)


def wait(
    count: Callable[[], int],
    is_head_there: Callable[[], bool],
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until no replica is left, the deadline has come, or Ray's head has long been away.

    Args:
        count: Replicas that are left here.
        is_head_there: Whether Ray's head answers.
        deadline: When to give up, on ``clock``.
        clock: The time, in seconds.
        sleep: Waits, in seconds.

    Returns:
        Whether no replica is left.
    """
    last_seen = clock()
    while count():
        now = clock()
        if is_head_there():
            last_seen = now
        if now >= deadline or now - last_seen > LOST_AFTER_S:
            return False
        sleep(_POLL_S)
    return True


def num_replicas(proc: Path = Path("/proc")) -> int:
    """Return how many of Serve's replicas run on this machine; Ray names their processes."""
    found = 0
    for path in proc.glob("[0-9]*/cmdline"):
        try:
            found += _REPLICA in path.read_bytes().decode(errors="replace")
        except OSError:  # ended meanwhile
            continue
    return found


def main(argv: list[str] | None = None) -> int:
    """Drain this pod. Always 0: a hook that fails tells nobody, and the pod goes all the same."""
    parser = argparse.ArgumentParser(prog="python -m cluster.drain", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="until the pod is killed")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    address = os.environ.get("RAY_ADDRESS") or "127.0.0.1:6379"
    node_ip = os.environ.get("POD_IP") or socket.gethostbyname(socket.gethostname())
    deadline = time.monotonic() + options.seconds
    gone = ask(
        address,
        lambda info: bool(info.node_manager_address == node_ip),
        options.seconds,
        "the pod is being deleted",
    ) and wait(num_replicas, lambda: _answers(address), deadline)
    _logger.info("replicas have gone" if gone else "replicas may be left")
    return 0


def _node_id(gcs: Any, is_it: Callable[[Any], bool]) -> str | None:
    alive = _module("ray.core.generated.gcs_pb2").GcsNodeInfo.ALIVE
    for node_id, info in gcs.get_all_node_info(timeout=5).items():
        if info.state == alive and is_it(info):
            return str(node_id.hex())
    return None


def _answers(address: str) -> bool:
    try:
        _gcs(address).get_all_node_info(timeout=5)
    except Exception:  # a boundary: whatever the client raises means that the head is away
        return False
    return True


def _gcs(address: str) -> Any:
    return _module("ray._raylet").GcsClient(address=address)


def _module(name: str) -> Any:
    """Import a module of Ray whose types are unknown."""
    return importlib.import_module(name)


if __name__ == "__main__":
    sys.exit(main())
