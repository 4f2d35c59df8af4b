"""The RayService's own ``serveConfigV2`` on a real Ray whose nodes have the chart's labels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cluster.nodes.local_cluster import LocalCluster
from cluster.nodes.node import NodeSpec
from cluster.ray_runtime import node_environment
from cluster.redis_server import free_port
from models.store import ModelFolder
from tests.integration.redis_fixture import PASSWORD, RedisProcess
from tests.k8s.chart import Manifest, rendered, serve_config, worker_groups

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.model, pytest.mark.slow]

ROLE = "banditserve/role"
REPLICA = "ServeReplica:banditserve:"
API_KEY = "a key of a client"
ASK = """
import sys
from cluster.drain import ask
address, name = sys.argv[1:]
sys.exit(not ask(address, lambda info: info.labels["name"] == name, 60.0, "a test"))
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def nodes() -> Iterator[LocalCluster]:
    """A head that takes no work, a node for each group of the chart, and a second for drafters."""
    with LocalCluster(NodeSpec("head", "head", num_cpus=0)) as cluster:
        for name in [*worker_groups(rendered("laptop")), "drafter-2"]:
            role = name.removesuffix("-2")
            labels = {ROLE: role, "name": name}
            cluster.add(NodeSpec(name, role, 2, labels, proxy_port=free_port()))
        yield cluster


def config_for_here(
    model: ModelFolder, redis: RedisProcess, folder: Path, http_port: int
) -> Manifest:
    """Return the laptop's configuration with this machine's folders, addresses and secrets."""
    config = serve_config(rendered("laptop"))
    config["http_options"].update(host="127.0.0.1", port=http_port)
    password, keys = folder / "password", folder / "api-keys"
    password.write_text(PASSWORD)
    keys.write_text(f"{API_KEY}\n")
    args: dict[str, Any] = config["applications"][0]["args"]
    args["model"] = str(model.path)
    args["cache_dir"] = str(model.path.parent.parent)
    args["state_dir"] = str(folder)
    args["metrics"]["host"] = "127.0.0.1"
    args["redis"].update(url=f"redis://127.0.0.1:{redis.port}", password_file=str(password))
    args["ingress"].update(api_keys_file=str(keys), token_host="127.0.0.1")
    return config


def deploy(address: str, config: Manifest) -> None:
    """Do what Serve's REST interface does with a configuration."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.deploy_serve_config", address],
        input=yaml.safe_dump(config),
        env={**os.environ, **node_environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_rendered_configuration_runs_each_part_on_nodes_of_its_group(
    nodes: LocalCluster, redis: RedisProcess, model_folder: ModelFolder, tmp_path: Path
) -> None:
    deploy(nodes.address, config_for_here(model_folder, redis, tmp_path, nodes.http_port))
    nodes.wait_until_ready()
    name = model_folder.path.name
    body = {"model": name, "prompt": "one two one two one", "max_tokens": 8, "temperature": 0}
    url = f"{nodes.url}/v1/completions"
    assert httpx.post(url, json=body).status_code == 401
    headers = {"Authorization": f"Bearer {API_KEY}"}
    answer = httpx.post(url, json=body, headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 8
    wanted = {
        "ingress": {"ingress", "policy"},
        "verifier": {"verifier"},
        "drafter": {"drafter_prompt_lookup"},
    }
    deployments = {name for names in wanted.values() for name in names}
    for node in nodes.nodes.values():
        here = {name for name in deployments if node.pids(REPLICA + name)}
        assert here <= wanted.get(node.spec.role, set()), node.spec
    status = httpx.get(f"{nodes.url}/status", headers=headers, timeout=10).json()
    assert status["policy"]["report"]["store_up"]
    _check_drain(nodes)


def _check_drain(nodes: LocalCluster) -> None:
    """A drafter's node that is drained, as a pod that is deleted does, hands its replica on."""
    drafter = REPLICA + "drafter_prompt_lookup"
    (first,) = (name for name in ("drafter", "drafter-2") if nodes.nodes[name].pids(drafter))
    other = {"drafter": "drafter-2", "drafter-2": "drafter"}[first]
    left = nodes.nodes[first]

    asked = [sys.executable, "-c", ASK, nodes.address, first]
    assert subprocess.run(asked, check=False).returncode == 0
    nodes.wait_until(lambda: bool(nodes.nodes[other].pids(drafter)), "a replacement")
    nodes.wait_until(lambda: not left.pids(drafter), "the drained replica to go")
