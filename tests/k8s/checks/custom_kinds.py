"""Kinds of operators, against strict schemas of the fields that we use and no others.

The operators' own definitions say more, and ``test_crds.py`` asks KubeRay's where they are at hand.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from tests.k8s.chart import Manifest
from tests.k8s.checks.builtin_kinds import describe, is_builtin

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION: Schema = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}


def integer(minimum: int = 0) -> Schema:
    """Return the schema of a whole number."""
    return {"type": "integer", "minimum": minimum}


def one_of(*values: str) -> Schema:
    """Return the schema of one of these words."""
    return {"enum": list(values)}


def many(item: Schema, at_least: int = 0) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": item, "minItems": at_least}


def fields(required: dict[str, Schema] | None = None, **optional: Schema) -> Schema:
    """Return the schema of an object with these fields only."""
    required = required or {}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {**required, **optional},
    }


RESOURCES = fields(requests={"type": "object"}, limits={"type": "object"})
SECRET_VALUE = fields(
    value={"type": "string"},
    valueFrom=fields({"secretKeyRef": fields({"name": TEXT, "key": TEXT})}),
)
TEMPLATE: Schema = {"type": "object"}  # checked as Kubernetes' own

RAY_CLUSTER = fields(
    {
        "rayVersion": TEXT,
        "headGroupSpec": fields(
            {"rayStartParams": TEXTS, "template": TEMPLATE, "labels": TEXTS},
        ),
        "workerGroupSpecs": many(
            fields(
                {
                    "groupName": TEXT,
                    "replicas": integer(),
                    "minReplicas": integer(),
                    "maxReplicas": integer(1),
                    "rayStartParams": TEXTS,
                    "labels": TEXTS,
                    "template": TEMPLATE,
                },
                idleTimeoutSeconds=integer(1),
                priority=integer(),
            ),
            at_least=1,
        ),
    },
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=fields(
        version=one_of("v1", "v2"),
        idleTimeoutSeconds=integer(1),
        upscalingMode=one_of("Default", "Aggressive", "Conservative"),
        imagePullPolicy=one_of("Always", "IfNotPresent", "Never"),
        resources=RESOURCES,
        securityContext={"type": "object"},
    ),
    authOptions=fields({"mode": one_of("disabled", "token")}),
    gcsFaultToleranceOptions=fields(
        {"redisAddress": TEXT}, redisUsername=SECRET_VALUE, redisPassword=SECRET_VALUE
    ),
)
RAY_SERVICE = fields(
    {"serveConfigV2": TEXT, "rayClusterConfig": RAY_CLUSTER},
    excludeHeadPodFromServeSvc=FLAG,
    rayClusterDeletionDelaySeconds=integer(),
    upgradeStrategy=fields(
        {"type": one_of("None", "NewCluster", "NewClusterWithIncrementalUpgrade")},
        clusterUpgradeOptions=fields(
            {
                "gatewayClassName": TEXT,
                "stepSizePercent": integer(),
                "intervalSeconds": integer(1),
            },
            maxSurgePercent=integer(),
        ),
    ),
)
PATH_MATCH = fields(
    {"path": fields({"type": one_of("Exact", "PathPrefix"), "value": {"pattern": "^/"}})}
)
HTTP_ROUTE = fields(
    {
        "parentRefs": many(fields({"name": TEXT}, namespace=TEXT, sectionName=TEXT), at_least=1),
        "rules": many(
            fields(
                {"backendRefs": many(fields({"name": TEXT, "port": PORT}), at_least=1)},
                matches=many(PATH_MATCH),
                timeouts=fields(request=DURATION, backendRequest=DURATION),
            ),
            at_least=1,
        ),
    },
    hostnames=many(TEXT),
)
RELABELING = fields(
    action=one_of("replace", "keep", "drop", "labelmap"),
    sourceLabels=many(TEXT),
    targetLabel=TEXT,
    regex=TEXT,
    replacement=TEXT,
)
POD_MONITOR = fields(
    {
        "selector": fields(matchLabels=TEXTS, matchExpressions=many({"type": "object"})),
        "podMetricsEndpoints": many(
            fields({"port": TEXT}, interval=DURATION, path=TEXT, relabelings=many(RELABELING)),
            at_least=1,
        ),
    }
)
PROMETHEUS_RULE = fields(
    {
        "groups": many(
            fields(
                {
                    "name": TEXT,
                    "rules": many(
                        fields(
                            {"alert": TEXT, "expr": TEXT, "labels": TEXTS, "annotations": TEXTS},
                            **{"for": DURATION},
                        ),
                        at_least=1,
                    ),
                }
            ),
            at_least=1,
        )
    }
)

SPECS = {
    ("ray.io/v1", "RayService"): RAY_SERVICE,
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): HTTP_ROUTE,
    ("monitoring.coreos.com/v1", "PodMonitor"): POD_MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): PROMETHEUS_RULE,
}
"""Schema of ``spec`` by version and kind."""


def check_custom_kinds(manifests: list[Manifest]) -> list[str]:
    """Return fields that are unknown, missing or of a wrong type in operators' kinds."""
    problems = []
    for manifest in manifests:
        version, kind = manifest["apiVersion"], manifest["kind"]
        if is_builtin(manifest):
            continue
        name = f"{kind}/{manifest['metadata']['name']}"
        if (version, kind) not in SPECS:
            problems.append(f"{name}: {version} has no such kind that we know")
            continue
        whole = fields(
            {
                "apiVersion": TEXT,
                "kind": TEXT,
                "metadata": fields({"name": TEXT}, labels=TEXTS, annotations=TEXTS),
                "spec": SPECS[version, kind],
            }
        )
        errors = Draft202012Validator(whole).iter_errors(manifest)
        problems += [describe(name, error) for error in errors]
    return problems
