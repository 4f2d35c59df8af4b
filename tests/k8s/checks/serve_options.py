"""``serveConfigV2``: Ray Serve's own schema without its tolerance, and our configuration within."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ray._common.utils import import_attr
from ray.serve.schema import ServeDeploySchema

from cluster.errors import ConfigError
from cluster.kuberay import read_config
from tests.k8s.chart import Manifest, serve_config
from tests.k8s.checks.placement import serve_deployments


def check_serve_options(manifests: list[Manifest]) -> list[str]:
    """Return what Serve would refuse or, silently, ignore; and faults of our configuration."""
    config = serve_config(manifests)
    problems = [f"serveConfigV2: {path}: unknown key" for path in unknown_keys(config)]
    try:
        ServeDeploySchema.model_validate(config)
    except ValidationError as error:
        problems += [f"serveConfigV2: {fault['loc']}: {fault['msg']}" for fault in error.errors()]
        return problems
    for app in config["applications"]:
        problems += _check_app(app)
    return problems


def unknown_keys(value: Any, model: Any = ServeDeploySchema, path: str = "") -> Iterator[str]:
    """Yield the path of every key that a model of Serve does not have; Serve ignores many."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from unknown_keys(item, model, f"{path}[{number}]")
        return
    known = model.model_fields
    aliases = {field.alias: name for name, field in known.items() if field.alias}
    for key, below in value.items():
        where = f"{path}.{key}" if path else key
        name = aliases.get(key, key)
        if name not in known:
            yield where
            continue
        inner = _models_in(known[name].annotation)
        if inner and isinstance(below, dict | list):
            yield from unknown_keys(below, inner[0], where)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _check_app(app: Manifest) -> Iterator[str]:
    try:
        builder = import_attr(app["import_path"])
        read_config(app["args"])
    except (ImportError, AttributeError) as error:
        yield f"import_path {app['import_path']}: {error}"
        return
    except ConfigError as error:
        yield from (f"args: {line}" for line in str(error).splitlines())
        return
    if not callable(builder):
        yield f"import_path {app['import_path']}: expected a function"
    names = {deployment.name for deployment in serve_deployments(app)}
    for deployment in app.get("deployments", []):
        if deployment["name"] not in names:
            yield f"deployments: {deployment['name']} is none of {', '.join(sorted(names))}"
