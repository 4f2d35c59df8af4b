"""Deploy the application on Ray Serve, wait until it answers, and take it away again."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx

from cluster.banner import base_url
from cluster.config import SystemConfig
from cluster.errors import ConfigError, NotReadyError, PortInUseError, RayUnreachableError

if TYPE_CHECKING:
    from ray.serve import Application

APP_NAME = "banditserve"
_POLL_S = 0.5
_FAILED = ("DEPLOY_FAILED", "UNHEALTHY")

_logger = logging.getLogger(__name__)


class ServeRuntime:
    """Our application on the Ray that this process has joined or started."""

    def __init__(self, config: SystemConfig) -> None:
        self._config = config
        self._started_serve = False
        self._deployed = False

    def deploy(self, app: Application) -> None:
        """Start Serve where it does not run yet, and deploy the application, without waiting.

        Raises:
            RayUnreachableError: If the Serve there listens elsewhere, or has this application.
        """
        from ray import serve

        running = _running_serve()
        if running is None:
            self._started_serve = True
            options = {"host": self._config.host, "port": self._config.port}
            serve.start(proxy_location="HeadOnly", http_options=options)
        else:
            self._check_fits(running)
        self._deployed = True
        target = serve.RunTarget(target=app, name=APP_NAME, route_prefix="/")
        serve.run_many([target], wait_for_applications_running=False)

    def wait_until_ready(self, note: Callable[[str], None]) -> None:
        """Wait until ``/health`` says that requests are answered.

        Args:
            note: Told what is waited for.

        Raises:
            NotReadyError: If a deployment fails or the time is up.
        """
        deadline = time.monotonic() + self._config.ready_timeout_s
        said = "no answer"
        while time.monotonic() < deadline:
            waiting = self._waiting_for()
            said = health(base_url(self._config)) or ""
            if not said:
                return
            note(waiting or said)
            time.sleep(_POLL_S)
        raise NotReadyError(
            f"not ready after {self._config.ready_timeout_s:g} s: {waiting or said}"
        )

    def stop(self) -> None:
        """Let requests under way end, for a while, and take away what was deployed."""
        from ray import serve

        if self._deployed:
            serve.delete(APP_NAME)
            self._deployed = False
        if self._started_serve:
            serve.shutdown()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
            self._started_serve = False

    def _check_fits(self, running: Any) -> None:
        from ray import serve

        port = running.http_config.port
        if port != self._config.port:
            raise RayUnreachableError(
                f"the Ray to join serves HTTP on port {port}, expected {self._config.port}; "
                f"name that one with --port {port}"
            )
        if APP_NAME in serve.status().applications:
            raise RayUnreachableError("the Ray to join serves this application already")

    def _waiting_for(self) -> str:
        """Return the deployments that are not up yet, in words.

        Raises:
            NotReadyError: If the application cannot come up.
        """
        from ray import serve

        app = serve.status().applications.get(APP_NAME)
        if app is None:
            return "nothing deployed yet"
        if app.status in _FAILED:
            reasons = [d.message for d in app.deployments.values() if d.status in _FAILED]
            raise NotReadyError(_last_line("\n".join([app.message, *reasons])))
        coming = [name for name, d in app.deployments.items() if d.status != "HEALTHY"]
        return f"waiting for {', '.join(coming)}" if coming else ""


def health(url: str, timeout_s: float = 2.0) -> str | None:
    """Ask ``/health``. Return None if requests are answered, else why not."""
    try:
        # Plain HTTP; without verify=False each call would read all certificates of the machine.
        answer = httpx.get(f"{url}/health", timeout=timeout_s, trust_env=False, verify=False)
    except httpx.HTTPError as error:
        return f"no answer yet ({type(error).__name__})"
    return None if answer.status_code == 200 else f"health is {answer.status_code}"


def check_port_free(host: str, port: int) -> None:
    """Check that HTTP can listen there.

    Raises:
        PortInUseError: If something else does.
        ConfigError: If this machine has no such address, or may not listen on the port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"port {port} on {host} is in use; choose another one with --port"
            ) from error
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def _running_serve() -> Any:
    from ray.serve.context import _get_global_client

    return _get_global_client(raise_if_no_controller_running=False)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "the application failed without a message"
