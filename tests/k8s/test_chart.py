"""The chart itself: what it refuses, what it keeps, and what its values mean."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import ray
import yaml

from scripts.chart_schema import PATH, with_config
from tests.k8s.chart import (
    CASES,
    CHART,
    PROFILES,
    ROOT,
    VALUES,
    cluster_of,
    helm,
    of_kind,
    pod_templates,
    ray_service,
    rendered,
    serve_config,
    template,
    worker_groups,
)


@pytest.mark.parametrize("profile", PROFILES)
def test_helm_finds_nothing_to_complain_of(profile: str) -> None:
    done = helm("lint", str(CHART), "--strict", "--values", str(VALUES / f"{profile}.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("confg.model=x", "confg"),
        ("config.verifier.num_replica=2", "num_replica"),
        ("config.drafters.prompt_lookup.deadline=2", "deadline"),
        ("config.port=80", "port"),
        ("config.redis.password=x", "password"),
        ("config.ingress.api_keys[0]=x", "api_keys"),
        ("redis.policy.url=redis://:secret@host:6379", "/redis/policy/url"),
        ("groups.verifier.maxReplicas=0", "/groups/verifier/maxReplicas"),
        ("groups.head.maxReplicas=1", "head"),
        ("head.maxReplicas=1", "maxReplicas"),
        ("gcsFaultTolerance.externalStorageNamespace=x", "externalStorageNamespace"),
        ("upgrade.strategy=Recreate", "/upgrade/strategy"),
        ("redis.gcs.url=redis+sentinel://a", "/redis/gcs/url"),
        ("fullnameOverride=9lives", "must begin with a letter"),
        ("groups.drafter.minReplicas=9", "minReplicas 9 is more than maxReplicas 4"),
        ("redis.policy.create=false", "redis.policy: expected create or a url"),
        ("redis.gcs.tls.enabled=true", "needs secretName"),
        ("redis.policy.password.secretName=", "needs secretName"),
        ("groups.other.maxReplicas=1", "groups.other: no drafter runs there"),
        ("groups.drafter=null", "expected a group drafter"),
        (
            "config.drafters.prompt_lookup.placement=in_process",
            "groups.drafter: no drafter runs there",
        ),
        ("exposure.type=gateway", "expected the name of a Gateway"),
        ("upgrade.strategy=NewClusterWithIncrementalUpgrade", "expected gatewayClassName"),
    ],
)
def test_values_that_cannot_be_are_refused_with_their_name(setting: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        template(sets=(setting,))


def test_the_schema_of_the_values_holds_the_configuration_as_it_is() -> None:
    schema = json.loads(PATH.read_text())
    assert schema == with_config(schema), "run `python -m scripts.chart_schema`"


def test_a_change_of_the_configuration_alone_keeps_the_cluster() -> None:
    before = yaml.safe_load(template(sets=("networkPolicy.enabled=false",)).split("---\n")[-1])
    text = template(sets=("networkPolicy.enabled=false", "config.policy.learner=exp3spec"))
    after = yaml.safe_load(text.split("---\n")[-1])
    assert before["kind"] == after["kind"] == "RayService"
    assert before["spec"]["serveConfigV2"] != after["spec"]["serveConfigV2"]
    assert before["spec"]["rayClusterConfig"] == after["spec"]["rayClusterConfig"]


def test_a_further_group_comes_last_and_gets_its_role() -> None:
    selector = "config.drafters.big.label_selector"
    sets = ("groups.a-gpu.image=cuda", f"{selector}.pool=x", f"{selector}.banditserve/role=a-gpu")
    text = template(sets=sets)
    bodies = [body for body in yaml.safe_load_all(text) if body]
    groups = worker_groups(bodies)
    assert list(groups) == ["ingress", "verifier", "drafter", "a-gpu"]
    assert groups["a-gpu"]["labels"] == {"banditserve/role": "a-gpu"}
    drafters = serve_config(bodies)["applications"][0]["args"]["drafters"]
    assert drafters["big"]["label_selector"] == {"banditserve/role": "a-gpu", "pool": "x"}
    assert drafters["prompt_lookup"]["label_selector"] == {"banditserve/role": "drafter"}


def test_without_drafters_on_workers_there_is_no_group_for_them() -> None:
    alone = "config.drafters.prompt_lookup.placement=in_process"
    bodies = [
        body for body in yaml.safe_load_all(template(sets=(alone, "groups.drafter=null"))) if body
    ]
    assert list(worker_groups(bodies)) == ["ingress", "verifier"]


@pytest.mark.parametrize("case", CASES)
def test_every_group_is_told_apart_by_its_label(case: str) -> None:
    roles = [
        group["labels"]["banditserve/role"] for group in worker_groups(rendered(case)).values()
    ]
    assert roles == list(worker_groups(rendered(case)))
    assert "head" not in roles


@pytest.mark.parametrize("case", CASES)
def test_nothing_secret_is_in_what_serve_logs(case: str) -> None:
    args = serve_config(rendered(case))["applications"][0]["args"]
    assert not {"password", "sentinel_password"} & args["redis"].keys()
    assert "api_keys" not in args["ingress"]
    assert "@" not in args["redis"]["url"]


def test_a_made_secret_has_a_password_for_each_redis() -> None:
    (secret,) = of_kind(rendered("single-gpu"), "Secret")
    assert set(secret["data"]) == {"policy-password", "gcs-password"}
    assert len(set(secret["data"].values())) == 2


def test_with_tls_redis_listens_with_it_only_and_is_asked_with_it() -> None:
    manifests = rendered("everything")
    redis = serve_config(manifests)["applications"][0]["args"]["redis"]
    assert redis["url"] == "rediss://bs-redis-policy:6379"
    assert redis["tls_ca_file"] == "/etc/banditserve/redis-policy-tls/ca.crt"
    fault_tolerance = cluster_of(manifests)["gcsFaultToleranceOptions"]
    assert fault_tolerance["redisAddress"] == "rediss://bs-redis-gcs:6379"
    for body in of_kind(manifests, "StatefulSet"):
        probe = body["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
        assert "valkey-cli --tls --cacert" in probe["exec"]["command"][2]
    for body in of_kind(manifests, "ConfigMap"):
        conf = body["data"].get("valkey.conf", "port 0\ntls-port 6379")
        assert "port 0\n" in conf
        assert "tls-port 6379" in conf


@pytest.mark.parametrize("case", CASES)
def test_gpus_are_asked_for_by_the_group_with_the_cuda_image_only(case: str) -> None:
    for name, pod in pod_templates(rendered(case)):
        container = pod["spec"]["containers"][0]
        asks = "nvidia.com/gpu" in container["resources"]["limits"]
        assert asks == container["image"].endswith("-cuda"), name


def test_streams_are_not_cut_short_by_what_is_in_front() -> None:
    (ingress,) = of_kind(rendered("single-gpu"), "Ingress")
    annotations = ingress["metadata"]["annotations"]
    nginx = "nginx.ingress.kubernetes.io/"
    assert annotations[nginx + "proxy-read-timeout"] == "3600"
    assert annotations[nginx + "proxy-send-timeout"] == "3600"
    assert annotations[nginx + "proxy-buffering"] == "off"
    (route,) = of_kind(rendered("everything"), "HTTPRoute")
    assert route["spec"]["rules"][0]["timeouts"] == {"request": "3600s", "backendRequest": "3600s"}


def test_only_paths_for_clients_are_exposed() -> None:
    (ingress,) = of_kind(rendered("single-gpu"), "Ingress")
    paths = [item["path"] for item in ingress["spec"]["rules"][0]["http"]["paths"]]
    (route,) = of_kind(rendered("everything"), "HTTPRoute")
    matches = [item["path"]["value"] for item in route["spec"]["rules"][0]["matches"]]
    assert sorted(paths) == sorted(matches) == ["/health", "/v1"]


def test_ray_is_the_same_everywhere() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    (pinned,) = re.findall(r"^ray==(\S+)$", lock, flags=re.MULTILINE)
    assert pinned == ray.__version__
    assert all(cluster_of(rendered(case))["rayVersion"] == pinned for case in CASES)


def test_versions_agree() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == version
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["image"]["cpu"]["tag"] == f"{version}-cpu"
    assert values["image"]["cuda"]["tag"] == f"{version}-cuda"


def test_the_name_is_the_release_s() -> None:
    assert ray_service(rendered("laptop"))["metadata"]["name"] == "bs"


def test_secrets_are_mounted_where_they_are_read_and_nowhere_else() -> None:
    manifests = rendered("everything")
    args = serve_config(manifests)["applications"][0]["args"]
    read_by = {
        args["redis"]["password_file"]: "ingress",
        args["redis"]["tls_ca_file"]: "ingress",
        args["ingress"]["api_keys_file"]: "ingress",
        "/etc/banditserve/redis-gcs-tls/ca.crt": "head",
    }
    found = {}
    for name, pod in pod_templates(manifests):
        if "RayService" not in name:
            continue
        items = {
            volume["name"]: volume["secret"]["items"]
            for volume in pod["spec"]["volumes"]
            if "secret" in volume
        }
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            for item in items.get(mount["name"], []):
                found[f"{mount['mountPath']}/{item['path']}"] = name.split()[-1]
    assert found == read_by
