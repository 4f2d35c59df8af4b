"""Kubernetes' own kinds, and pod templates within others, strictly by its published schemas."""

from __future__ import annotations

import functools
import re

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from tests.k8s.chart import Manifest, pod_templates

KUBERNETES = "1.37"
_FOLDER = f"kubernetes-json-schema/v{KUBERNETES}.0-local-strict"


def check_builtin_kinds(manifests: list[Manifest]) -> list[str]:
    """Return what an API server would refuse, unknown fields included; other kinds are left out."""
    problems = []
    for manifest in manifests:
        if not is_builtin(manifest):
            continue
        group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", manifest["apiVersion"])
        name = f"{manifest['kind']}/{manifest['metadata']['name']}"
        problems += _errors(f"{manifest['kind'].lower()}-{group}", manifest, name)
    for name, template in pod_templates(manifests):
        problems += _errors("podtemplatespec-v1", template, name)
    return problems


def is_builtin(manifest: Manifest) -> bool:
    """Return whether an object's kind is Kubernetes' own and not some operator's."""
    group = manifest["apiVersion"].rpartition("/")[0]
    return "." not in group or (group.endswith(".k8s.io") and not group.startswith("gateway."))


def _errors(schema: str, body: Manifest, name: str) -> list[str]:
    try:
        validator = _validator(schema)
    except FileNotFoundError:
        return [f"{name}: Kubernetes {KUBERNETES} has no kind of this version"]
    return [describe(name, error) for error in validator.iter_errors(body)]


def describe(name: str, error: ValidationError) -> str:
    """Return one line for a fault, with the path to it."""
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{name}: {path}: {error.message[:300]}"


@functools.cache
def _validator(schema: str) -> Draft202012Validator:
    contents = schema_contents(f"{_FOLDER}/{schema}.json", KUBERNETES)
    registry = Resource.from_contents(contents) @ _definitions()
    return Draft202012Validator(contents, registry=registry)


@functools.cache
def _definitions() -> Registry:
    contents = schema_contents(f"{_FOLDER}/_definitions.json", KUBERNETES)
    return Resource.from_contents(contents) @ Registry()
