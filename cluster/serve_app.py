"""The Serve application: which deployments there are and how they hold each other."""

from __future__ import annotations

import os
from typing import Any

from ray import serve
from ray.serve import Application

from cluster.config import SystemConfig
from drafters.host import bind_host
from models.store import ModelFolder
from policy_service.deployment import bind_policy
from policy_service.redis_pool.config import RedisConfig
from replicas.config import EngineConfig
from replicas.ingress.deployment import ingress_deployment
from replicas.metrics.exporter import host_exporter, policy_exporter
from replicas.router import router_config
from replicas.scaling import autoscaling_config
from replicas.verifier import VerifierDeployment

HEALTH_CHECKS = {"health_check_period_s": 2.0, "health_check_timeout_s": 20.0}


def build_app(config: SystemConfig, redis: RedisConfig, model: ModelFolder) -> Application:
    """Return the application that a configuration describes, ready for ``serve.run``.

    Args:
        config: The whole configuration.
        redis: The Redis to use, the private one's if none was named.
        model: The target model's folder, at the same path on every node.
    """
    policy = bind_policy(
        config.policy,
        redis,
        model.name,
        policy_exporter(config.metrics, model.name),
        name="policy",
        **HEALTH_CHECKS,
    )
    hosts = {
        name: bind_host(name, drafter, host_exporter(config.metrics, model.name))
        for name, drafter in config.drafters.items()
        if drafter.placement == "worker"
    }
    verifier = _with_options(
        serve.deployment(VerifierDeployment), **_verifier_options(config)
    ).bind(
        engine_config(config),
        model.name,
        str(model.path),
        config.policy,
        config.drafters,
        policy,
        hosts,
        config.metrics,
    )
    app: Application = _with_options(
        ingress_deployment(config.ingress),
        name="ingress",
        graceful_shutdown_timeout_s=config.drain_timeout_s,
    ).bind(
        config.ingress,
        model.name,
        str(model.path),
        config.policy,
        tuple(config.drafters),
        verifier,
        policy,
        hosts,
        config.verifier.engine.max_context,
        config.metrics,
    )
    return app


def engine_config(config: SystemConfig) -> EngineConfig:
    """Return the engine's configuration, this machine's cores shared out if all run on it.

    Shared out among as many Verifiers as there may be: one that is there must not be crowded out by
    one that comes.
    """
    engine, num_replicas = config.verifier.engine, config.verifier.max_verifiers
    if engine.num_threads or num_replicas == 1 or config.ray.address:
        return engine
    num_threads = max(1, (os.cpu_count() or 1) // num_replicas)
    return engine.model_copy(update={"num_threads": num_threads})


def _with_options(deployment: Any, **options: Any) -> Any:
    """Return the deployment with these options; what Serve makes of a class has no useful type."""
    return deployment.options(**options, **HEALTH_CHECKS)


def _verifier_options(config: SystemConfig) -> dict[str, Any]:
    verifier = config.verifier
    actor: dict[str, Any] = {"num_cpus": verifier.num_cpus, "num_gpus": verifier.num_gpus}
    if verifier.label_selector:
        actor["label_selector"] = verifier.label_selector
    scaling: dict[str, Any] = (
        {"num_replicas": verifier.num_replicas}
        if verifier.autoscaling is None
        else {"autoscaling_config": autoscaling_config(verifier.autoscaling)}
    )
    return {
        "name": "verifier",
        **scaling,
        "max_ongoing_requests": verifier.max_ongoing_requests,
        "request_router_config": router_config(verifier.routing, verifier.engine.page_tokens),
        "ray_actor_options": actor,
        "graceful_shutdown_timeout_s": config.drain_timeout_s,
    }
