"""Put the application on a Ray, as a RayService does: a process that joins, deploys and leaves.

``python -m cluster.nodes.deploy`` reads what to deploy from standard input as JSON. Deploying the
same application again changes it in place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from cluster.errors import NotReadyError
from cluster.ray_runtime import NAMESPACE, node_environment
from cluster.serve_runtime import APP_NAME

DEPLOY_TIMEOUT_S = 120.0
_IMPORT_PATH = "cluster.kuberay:build"


def deploy(address: str, args: Mapping[str, Any], port: int, proxies: str = "HeadOnly") -> None:
    """Start Serve where it does not run yet, and ask it for the application, without waiting.

    Args:
        address: The Ray's head, ``host:port``.
        args: The configuration, as ``cluster.kuberay`` takes it.
        port: HTTP port of the head's proxy.
        proxies: Where Serve has HTTP proxies: ``HeadOnly`` or ``EveryNode``.

    Raises:
        NotReadyError: If that fails.
    """
    order = {"address": address, "args": dict(args), "port": port, "proxies": proxies}
    done = subprocess.run(
        [sys.executable, "-m", "cluster.nodes.deploy"],
        input=json.dumps(order),
        env={**os.environ, **node_environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEPLOY_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-5:])
        raise NotReadyError(f"the application cannot be deployed: {last}")


def main() -> None:
    """Do what standard input says."""
    import ray
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    order = json.load(sys.stdin)
    ray.init(address=order["address"], namespace=NAMESPACE, log_to_driver=False)
    serve.start(
        proxy_location=order["proxies"],
        http_options={"host": "127.0.0.1", "port": order["port"]},
    )
    app = {"name": APP_NAME, "import_path": _IMPORT_PATH, "args": order["args"]}
    client: Any = _get_global_client()
    client.deploy_apps(ServeDeploySchema.model_validate({"applications": [app]}))
    ray.shutdown()


if __name__ == "__main__":
    main()
