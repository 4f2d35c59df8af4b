"""A process' own port for Prometheus: where Kubernetes scrapes each pod for itself."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from replicas.config import MetricsConfig
from replicas.metrics.exposition import CONTENT_TYPE, render
from replicas.metrics.part_samples import host_samples, policy_samples
from replicas.metrics.samples import Sample

logger = logging.getLogger(__name__)

NUM_PORTS = 16
"""So many ports are tried, from the configured one on: processes of one node share them."""

Ask = Callable[[], Awaitable[Any]]
"""Asks a part what it says of itself; runs on the part's event loop."""


class _Server(ThreadingHTTPServer):
    """A server that shares its port with nobody and asks no name service for its own name."""

    allow_reuse_port = False

    def server_bind(self) -> None:
        TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)


class MetricsPort:
    """A port that answers scrapes, on threads of its own, until it is closed.

    Attributes:
        number: The port; 0 if there is none.
    """

    def __init__(self, server: ThreadingHTTPServer | None) -> None:
        self._server = server
        self.number = 0
        if server is not None:
            self.number = server.server_port
            threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@dataclass(frozen=True, slots=True)
class Exporter:
    """Opens the port of a process; travels to it with the configuration of its deployment.

    Attributes:
        config: Where, and whether at all.
        read: Makes samples of what the part says of itself.
    """

    config: MetricsConfig
    read: Callable[[Any], Iterable[Sample]]

    def __call__(self, ask: Ask) -> int:
        """Open the port until the process ends; return which it is, 0 if there is none."""
        return self.open(ask).number

    def open(self, ask: Ask) -> MetricsPort:
        """Open the port for the part that runs on the present event loop.

        A process goes on without one if all are taken.
        """
        config = self.config
        if not config.port:
            return MetricsPort(None)
        handler = _handler(partial(self._scrape, ask, asyncio.get_running_loop()))
        for port in range(config.port, min(config.port + NUM_PORTS, 65536)):
            try:
                return MetricsPort(_Server((config.host, port), handler))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    logger.warning("no metrics on %s:%d: %s", config.host, port, error)
                    return MetricsPort(None)
        logger.warning("no free port for metrics from %d on; going on without", config.port)
        return MetricsPort(None)

    def _scrape(self, ask: Ask, loop: asyncio.AbstractEventLoop) -> bytes:
        """Answer a scrape; runs on one of the port's threads.

        Raises:
            TimeoutError: If the part does not answer in time.
        """
        asked = asyncio.run_coroutine_threadsafe(_awaited(ask), loop)
        try:
            answer = asked.result(self.config.timeout_s)
        finally:
            asked.cancel()
        return render(self.read(answer), self.config.vllm_names)


def policy_exporter(config: MetricsConfig, model_name: str) -> Exporter:
    """Return the exporter of the Policy, which says its status."""
    return Exporter(config, partial(policy_samples, model_name=model_name))


def host_exporter(config: MetricsConfig, model_name: str) -> Exporter:
    """Return the exporter of drafters' hosts, which say their status."""
    return Exporter(config, partial(host_samples, model_name=model_name))


def sample_exporter(config: MetricsConfig) -> Exporter:
    """Return the exporter of parts that say samples."""
    return Exporter(config, list)


def _handler(scrape: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            try:
                body = scrape()
            except Exception as error:  # a boundary: the scrape fails, the part does not
                logger.warning("no metrics: %s", str(error) or type(error).__name__)
                self.send_error(500)
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            logger.debug(format, *args)

    return Handler


async def _awaited(ask: Ask) -> Any:
    return await ask()
