"""The application as Ray Serve builds it by itself, on a cluster that KubeRay runs.

A RayService names ``cluster.kuberay:build`` as ``import_path`` and gives the configuration as
``args``; Serve calls it in a task on some node. Ray, Redis and the machines are given here: nothing
is started, and nothing secret is in ``args``, which Serve logs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from ray.serve import Application

from cluster.config import SystemConfig
from cluster.config_errors import describe
from cluster.drafter_check import check_drafters
from cluster.errors import ConfigError
from cluster.serve_app import build_app
from models.store import resolve_model

_logger = logging.getLogger(__name__)


def build(args: Mapping[str, Any]) -> Application:
    """Return the application that a configuration describes.

    The model is fetched into ``cache_dir`` where it is not there yet. Redis need not answer: the
    Policy waits for it.

    Args:
        args: The configuration, as a configuration file holds it. Every node must have
            ``cache_dir``, the model and what drafters read at the same path.

    Raises:
        ConfigError: If the configuration is wrong, or a drafter does not fit the model.
        ModelError: If the model cannot be had.
    """
    config = read_config(args)
    model = resolve_model(config.model, config.cache_dir)
    _logger.info("model %s (%s) is in %s", model.name, model.source, model.path)
    check_drafters(config.drafters, model)
    return build_app(config, config.redis, model)


def read_config(args: Mapping[str, Any]) -> SystemConfig:
    """Return the configuration, checked for a cluster: Ray is there, Redis must be named.

    Raises:
        ConfigError: If a key or value is wrong, one line for each fault, or no Redis is named.
    """
    ray = args.get("ray", {})
    if isinstance(ray, Mapping):
        ray = {"address": "auto", **ray}
    try:
        config = SystemConfig.model_validate({**args, "ray": ray})
    except ValidationError as error:
        raise ConfigError("\n".join(describe(error, SystemConfig))) from error
    if config.redis.url is None:
        raise ConfigError("redis.url: expected the address of a Redis, found none")
    return config
