"""Run a Ray of its own until told to stop: ``python -m tests.integration.ray_head TEMP_DIR``.

Prints its address. Whoever starts it sets RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, for itself and for
all that join: it keeps Ray on loopback.
"""

from __future__ import annotations

import sys

import ray


def main() -> None:
    """Start, say where, and wait for a line."""
    ray.init(
        address="local",
        num_cpus=4,
        object_store_memory=100_000_000,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=sys.argv[1],
    )
    print(ray.get_runtime_context().gcs_address, flush=True)
    for line in sys.stdin:
        if line.strip() == "actors":
            actors = ray.util.list_named_actors(all_namespaces=True)
            print([actor["name"] for actor in actors], flush=True)
        else:
            break
    ray.shutdown()


if __name__ == "__main__":
    main()
