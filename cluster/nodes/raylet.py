"""Run one node of a Ray until it is told to end: ``python -m cluster.nodes.raylet``, JSON on stdin.

``ray start`` refuses to join other nodes over loopback; this starts the same processes.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

STARTED = "node started"
_PERIOD_S = 1.0


def main() -> None:
    """Start the node that standard input describes, say so, and stay while its raylet does.

    Expected are ``head``, ``address`` (the head's, of other nodes), ``port`` (of the head) and
    ``params``, further fields of Ray's own ``RayParams``.
    """
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    order: dict[str, Any] = json.load(sys.stdin)
    fields: dict[str, Any] = {
        "node_ip_address": "127.0.0.1",
        "min_worker_port": 0,  # any that are free
        "max_worker_port": 0,
        "dashboard_agent_listen_port": 0,
        "include_log_monitor": False,
        "include_dashboard": False,
        "num_gpus": 0,
        "gcs_address": order.get("address"),
        "gcs_server_port": order.get("port"),
        **order["params"],
    }
    params = RayParams(**fields)
    node: Any = Node(params, head=order["head"], shutdown_at_exit=True, spawn_reaper=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # its exit ends the node's processes
    print(STARTED, flush=True)
    while not node.dead_processes():
        time.sleep(_PERIOD_S)
    sys.exit("a process of the node has ended")


if __name__ == "__main__":
    main()
