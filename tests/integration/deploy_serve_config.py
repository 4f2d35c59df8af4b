"""Deploy a Serve configuration: ``python -m tests.integration.deploy_serve_config ADDRESS`` < YAML.

Does what Serve's REST interface does, which KubeRay calls: starts Serve with the configuration's
options and hands it the rest, in a namespace of its own.
"""

from __future__ import annotations

import sys

import ray
import yaml
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema


def main() -> None:
    """Deploy what standard input says."""
    config = yaml.safe_load(sys.stdin)
    schema = ServeDeploySchema.model_validate(config)
    ray.init(address=sys.argv[1], namespace="_ray_internal_dashboard", log_to_driver=False)
    serve.start(proxy_location=schema.proxy_location, http_options=config["http_options"])
    client = _get_global_client()
    assert client is not None
    client.deploy_apps(schema)
    ray.shutdown()


if __name__ == "__main__":
    main()
