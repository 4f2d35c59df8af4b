"""What the Ingress needs of the other parts, as protocols; Serve's handles fit them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from replicas.api import GenerationRequest, GenerationResult


class Call(Protocol):
    """A call under way."""

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for its result."""

    def cancel(self) -> Any:
        """Cancel it, wherever it runs. Never waits."""


class GenerationCall(Call, Protocol):
    """A call that generates a reply."""

    def __await__(self) -> Generator[Any, None, GenerationResult]:
        """Wait for the whole reply."""


class GenerateMethod(Protocol):
    """``VerifierDeployment.generate`` as seen through a handle."""

    def remote(self, request: GenerationRequest) -> GenerationCall:
        """Start generating on some Verifier."""


class VerifierHandle(Protocol):
    """The Verifiers."""

    @property
    def generate(self) -> GenerateMethod:
        """The method that generates."""


class Broadcast(Protocol):
    """A call to every replica of a deployment."""

    async def results_async(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for all answers."""


class BroadcastHandle(Protocol):
    """A deployment whose every replica can be asked."""

    def broadcast(self, method_name: str, *args: Any) -> Broadcast:
        """Ask every replica."""


class StatusMethod(Protocol):
    """``status`` of an actor as seen through a handle."""

    def remote(self) -> Any:
        """Ask for it; the answer is awaitable."""


class StatusHandle(Protocol):
    """An actor that can be asked for its status."""

    @property
    def status(self) -> StatusMethod:
        """The method."""


class PolicyHandle(StatusHandle, Protocol):
    """The Policy."""

    @property
    def dump(self) -> StatusMethod:
        """The method that says what was learnt."""
