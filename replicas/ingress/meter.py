"""What an Ingress counts of the HTTP requests it answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from replicas.metrics.samples import Distribution, Labels, Sample, by_label
from replicas.metrics.series import CHOICES

CLIENT_GONE = 499
"""Status of a request whose client went away before it was answered, as nginx has it."""
OUTCOMES = ("started", "finished", "failed")


class IngressMeter:
    """Counts of one Ingress. Belongs to its event loop.

    Attributes:
        num_running: HTTP requests under way.
    """

    def __init__(self) -> None:
        self.num_running = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._num_choices = Distribution.empty(CHOICES)

    def count_request(self, route: str, status: int) -> None:
        """Count an HTTP request that is over."""
        self._requests[route, status] += 1

    def count_choices(self, num_choices: int) -> None:
        """Count a request for so many choices of each prompt."""
        self._num_choices.add(num_choices)

    def samples(
        self, model_name: str, replica: str, choices: Mapping[str, int]
    ) -> Iterator[Sample]:
        """Yield everything counted so far.

        Args:
            model_name: The model.
            replica: This Ingress.
            choices: What became of choices, as the generator counts them.
        """
        labels: Labels = {"model_name": model_name, "replica": replica}
        for (route, status), count in self._requests.items():
            named = {**labels, "route": route, "status": str(status)}
            yield Sample("banditserve_http_requests_total", named, count)
        yield Sample("banditserve_http_requests_in_progress", labels, self.num_running)
        outcomes = ((outcome, choices.get(outcome, 0)) for outcome in OUTCOMES)
        yield from by_label("banditserve_choices_total", labels, "outcome", outcomes)
        yield Sample("banditserve_resubmissions_total", labels, choices.get("resubmitted", 0))
        yield Sample(
            "vllm:request_params_n",
            {"model_name": model_name, "engine": replica},
            self._num_choices.copy(),
        )


class MeterMiddleware:
    """Counts every HTTP request and says when it arrived, as ``request.state.arrived_at``.

    Args:
        app: What is around.
        meter: What counts.
    """

    def __init__(self, app: ASGIApp, meter: IngressMeter) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["arrived_at"] = time.time()
        status = CLIENT_GONE

        async def noted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._meter.num_running += 1
        try:
            await self._app(scope, receive, noted_send)
        finally:
            self._meter.num_running -= 1
            # The route's pattern, never the path: paths are the clients' and without bound.
            route = getattr(scope.get("route"), "path", "none")
            self._meter.count_request(route, status)
