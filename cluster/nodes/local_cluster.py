"""A Ray of several nodes on this machine with our application on it, to be harmed or loaded."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from cluster.errors import DrillError, NotReadyError, RayStartError
from cluster.nodes.deploy import deploy
from cluster.nodes.node import ADDRESS, LocalNode, NodeSpec
from cluster.ray_runtime import START_ATTEMPTS
from cluster.redis_server import free_port
from cluster.serve_runtime import health

READY_TIMEOUT_S = 240.0
_POLL_S = 0.2

HEAD = NodeSpec("head", "head", num_cpus=1)


class LocalCluster:
    """Nodes by name, the first of them the head. A context manager: its end ends them all.

    Args:
        head: What the head is.
        port: The head's port; None draws one.

    Attributes:
        nodes: Its nodes by name.
        url: Where the application is asked, without ``/v1``: the head's proxy, at first.
    """

    def __init__(
        self,
        head: NodeSpec = HEAD,
        port: int | None = None,
    ) -> None:
        _want_token()
        self.port = port or free_port()
        self.http_port = free_port()
        self.url = f"http://{ADDRESS}:{self.http_port}"
        self.nodes: dict[str, LocalNode] = {}
        self._head = head

    def __enter__(self) -> Self:
        """Start the head."""
        try:
            self.start_head()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every node."""
        self.close()

    def close(self) -> None:
        """End every node, the head last."""
        for name in reversed(list(self.nodes)):
            self.nodes.pop(name).kill()

    @property
    def address(self) -> str:
        """The head's ``host:port``."""
        return f"{ADDRESS}:{self.port}"

    def start_head(self) -> None:
        """Start the head, also after it was lost.

        Raises:
            RayStartError: If it does not start.
        """
        self.nodes = {self._head.name: LocalNode(self._head, port=self.port), **self.nodes}
        self._wait_for(self._head.name)

    def add(self, *specs: NodeSpec) -> None:
        """Add nodes.

        Raises:
            RayStartError: If one does not start.
        """
        for spec in specs:
            self.nodes[spec.name] = LocalNode(spec, self.address)
        for spec in specs:
            self._wait_for(spec.name)

    def _wait_for(self, name: str) -> None:
        """Wait for a node, and start it again if need be: Ray gives its parts 30 s."""
        for attempts_left in range(START_ATTEMPTS, 0, -1):
            node = self.nodes[name]
            try:
                node.wait_until_started()
                return
            except RayStartError:
                if attempts_left == 1:
                    raise
                node.kill()
                self.nodes[name] = node.again()

    def lose(self, name: str) -> NodeSpec:
        """Kill a node, all its processes at once, and return what it was."""
        node = self.nodes.pop(name)
        node.kill()
        return node.spec

    def deploy(self, args: Mapping[str, Any], proxies: str = "HeadOnly") -> None:
        """Ask for the application, or change it in place, without waiting.

        Raises:
            NotReadyError: If Serve does not take it.
        """
        deploy(self.address, args, self.http_port, proxies)

    def status(self) -> dict[str, Any]:
        """Return what ``/status`` says.

        Raises:
            httpx.HTTPError: If it does not answer.
        """
        answer = httpx.get(f"{self.url}/status", timeout=10.0, trust_env=False)
        answer.raise_for_status()
        status: dict[str, Any] = answer.json()
        return status

    def wait_until(
        self, condition: Callable[[], bool], what: str, timeout_s: float = 180.0
    ) -> float:
        """Wait for a condition on the running system; an error in it counts as not yet.

        Returns:
            How long it took, in seconds.

        Raises:
            NotReadyError: If it does not come; says what was waited for.
        """
        started = time.monotonic()
        problem: Exception | None = None
        while time.monotonic() - started < timeout_s:
            try:
                if condition():
                    return time.monotonic() - started
                problem = None
            except (httpx.HTTPError, LookupError, TypeError, DrillError) as error:
                problem = error
            time.sleep(_POLL_S)
        raise NotReadyError(
            f"waited {timeout_s:g} s for {what}" + (f": {problem}" if problem else "")
        )

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Wait until requests are answered, and return how long it took, in seconds.

        Raises:
            NotReadyError: If the time is up.
        """
        return self.wait_until(lambda: health(self.url) is None, "the system to answer", timeout_s)


def _want_token() -> None:
    """Let every Ray started from this process want a token, which its children inherit."""
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
