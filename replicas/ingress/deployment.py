"""The Ingress as a Serve deployment."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve

from models.info import read_model_info
from models.tokenizer import load_tokenizer
from policy_service.config import PolicyConfig
from replicas.config import NO_PORT, IngressConfig, MetricsConfig
from replicas.ingress.app import Routes, build_app
from replicas.ingress.generation import Generator, RetryPolicy
from replicas.ingress.meter import IngressMeter
from replicas.ingress.metrics import Part, Scraper, system_parts
from replicas.ingress.service import Serving
from replicas.ingress.status import StatusCollector
from replicas.metrics.exporter import sample_exporter
from replicas.metrics.samples import Sample
from replicas.token_stream import TokenReceiver


@serve.ingress()
class IngressDeployment:
    """Answers HTTP: validates, tokenizes, has replies generated, and keeps them alive.

    Args:
        config: Its configuration.
        model_name: The name that clients use.
        model_dir: Folder of the model; only tokenizer and configuration are read.
        policy_config: Limits of what requests may say about speculation.
        drafters: Names of the configured drafters.
        verifier: Handle of the Verifiers.
        policy: Handle of the Policy actor.
        drafter_hosts: Handles of the drafters' hosts, by drafter.
        max_context: Shorter context than the model's own; 0 for the model's.
        metrics: Where it shows its metrics.
    """

    def __init__(
        self,
        config: IngressConfig,
        model_name: str,
        model_dir: str,
        policy_config: PolicyConfig,
        drafters: tuple[str, ...],
        verifier: Any,
        policy: Any,
        drafter_hosts: Mapping[str, Any],
        max_context: int = 0,
        metrics: MetricsConfig = NO_PORT,
    ) -> None:
        self._started_at = time.time()
        self._metrics_port = 0
        node_ip: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's own
        self._receiver = TokenReceiver(config.token_host or node_ip)
        collector = StatusCollector(verifier, policy, drafter_hosts)
        self._generator = Generator(
            verifier,
            self._receiver,
            RetryPolicy(config.max_attempts, config.retry_window_s),
            collector.is_any_verifier_alive,
        )
        serving = Serving(
            config=config,
            model=read_model_info(model_name, model_dir, max_context),
            tokenizer=load_tokenizer(model_name, model_dir),
            policy_config=policy_config,
            drafters=drafters,
            generator=self._generator,
        )
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._model_name = model_name
        self._meter = IngressMeter()
        self._others = system_parts(model_name, verifier, policy, drafter_hosts)
        labels = {"model_name": model_name, "replica": self._replica}
        self._scraper = Scraper(metrics, labels, self._own_samples, self._parts)
        self._exporter = sample_exporter(metrics)
        self._routes = Routes(serving, collector, self._status, self._meter, self._scraper)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the application; Serve calls this once, after the constructor."""
        return build_app(self._routes, self._lifespan, echo_id=False)

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        await self._receiver.start()
        port = self._exporter.open(self.metric_samples)
        self._metrics_port = port.number
        try:
            yield
        finally:
            port.close()
            await self._receiver.stop()

    async def metric_samples(self) -> list[Sample]:
        """Return what this Ingress measured, for Prometheus."""
        return list(self._scraper.own_samples())

    def _own_samples(self) -> Iterator[Sample]:
        return self._meter.samples(self._model_name, self._replica, self._generator.counts)

    def _parts(self) -> list[Part]:
        """Return all parts, the Ingresses among them: this one was asked by chance."""
        context = serve.get_replica_context()
        ingresses = serve.get_deployment_handle(context.deployment, context.app_name)
        return [*self._others, Part("ingress", ingresses, "metric_samples", list)]

    def _status(self) -> dict[str, Any]:
        """Return what this Ingress says of itself."""
        return {
            "ingress": {
                "replica": self._replica,
                "metrics_port": self._metrics_port,
                "started_at": self._started_at,
                "choices": dict(self._generator.counts),
                "token_stream": dict(self._receiver.counts),
            }
        }


def ingress_deployment(config: IngressConfig) -> serve.Deployment:
    """Return the deployment, sized by its configuration; ``bind`` it to the parts it calls."""
    actor: dict[str, Any] = {"num_cpus": config.num_cpus}
    if config.label_selector:
        actor["label_selector"] = config.label_selector
    make: Callable[[type], serve.Deployment] = serve.deployment(
        name="Ingress",
        num_replicas=config.num_replicas,
        max_ongoing_requests=config.max_ongoing_requests,
        ray_actor_options=actor,
    )
    return make(IngressDeployment)
