"""``GET /metrics`` at an Ingress: everybody's series at once, and its own counts of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import DeploymentUnavailableError

from drafters.sessions import ServerLoad
from replicas.config import IngressConfig, MetricsConfig
from replicas.ingress.metrics import Part, system_parts
from replicas.metrics.samples import Sample
from tests.unit.replicas.ingress.fakes import HELLO, MODEL, Server, serving

HOST = {
    "name": "near",
    "replica_id": "h1",
    "up": True,
    "restarts": 0,
    "worker": {"num_refused_calls": 0, **asdict(ServerLoad())},
}
POLICY = {"store_up": True, "batches_applied": 3}


@dataclass
class FakeHandle:
    """A deployment whose replicas answer what they are told to."""

    answers: list[Any]
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)

    def broadcast(self, method_name: str) -> FakeHandle:
        self.asked.append(method_name)
        return self

    async def results_async(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        assert timeout_s == 2.0
        assert return_exceptions
        if self.error is not None:
            raise self.error
        return self.answers


def engine(name: str, value: float) -> list[Sample]:
    return [Sample("vllm:generation_tokens_total", {"model_name": MODEL, "engine": name}, value)]


@dataclass
class Others:
    """The parts that are asked."""

    verifier: FakeHandle = field(
        default_factory=lambda: FakeHandle([engine("a", 2.0), engine("b", 3.0)])
    )
    policy: FakeHandle = field(default_factory=lambda: FakeHandle([POLICY]))
    host: FakeHandle = field(default_factory=lambda: FakeHandle([HOST]))

    def parts(self) -> list[Part]:
        return system_parts(MODEL, self.verifier, self.policy, {"near": self.host})


@asynccontextmanager
async def metered(
    others: Others, metrics: MetricsConfig | None = None, keys: tuple[str, ...] = ()
) -> AsyncIterator[Server]:
    """Run the application around a fake Verifier, with these parts."""
    async with serving(
        config=IngressConfig(api_keys=keys), metrics=metrics, parts=others.parts
    ) as server:
        yield server


async def scraped(server: Server) -> dict[str, dict[frozenset[str], float]]:
    """Return values by series and label values."""
    answer = await server.client.get("/metrics")
    assert answer.status_code == 200
    found: dict[str, dict[frozenset[str], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.values())] = sample.value
    return found


def by(values: Mapping[frozenset[str], float], label: str) -> float:
    [value] = [value for labels, value in values.items() if label in labels]
    return value


def test_a_scrape_has_the_series_of_all_parts() -> None:
    async def check() -> None:
        others = Others()
        async with metered(others) as server:
            found = await scraped(server)
        assert sum(found["vllm:generation_tokens_total"].values()) == 5.0
        assert by(found["banditserve_policy_batches_total"], "applied") == 3.0
        assert by(found["banditserve_drafter_up"], "near") == 1.0
        up = found["banditserve_parts_up"]
        assert [by(up, part) for part in ("verifier", "policy", "drafter")] == [2, 1, 1]
        assert set(found["banditserve_scrape_misses_total"].values()) == {0.0}
        assert (others.verifier.asked, others.policy.asked) == (["metric_samples"], ["status"])

    asyncio.run(check())


def test_parts_that_do_not_answer_are_left_out_and_counted() -> None:
    async def check() -> None:
        others = Others()
        others.verifier.answers[1] = RuntimeError("it died")
        others.policy.error = TimeoutError()
        others.host.answers = [{"of": "another version"}]
        async with metered(others) as server:
            await scraped(server)
            found = await scraped(server)
        assert sum(found["vllm:generation_tokens_total"].values()) == 2.0
        assert "banditserve_redis_up" not in found
        misses = found["banditserve_scrape_misses_total"]
        assert [by(misses, part) for part in ("verifier", "policy", "drafter")] == [2, 2, 2]
        up = found["banditserve_parts_up"]
        assert [by(up, part) for part in ("verifier", "policy", "drafter")] == [1, 0, 0]

    asyncio.run(check())


def test_a_drafter_that_has_no_worker_now_is_not_missed() -> None:
    async def check() -> None:
        others = Others()
        others.host.error = DeploymentUnavailableError(DeploymentID("drafter_near"))
        async with metered(others) as server:
            found = await scraped(server)
        assert by(found["banditserve_parts_up"], "drafter") == 0
        assert by(found["banditserve_scrape_misses_total"], "drafter") == 0

    asyncio.run(check())


def test_requests_are_counted_by_route_and_status_never_by_path() -> None:
    async def check() -> None:
        async with metered(Others()) as server:
            body = {"model": MODEL, "messages": HELLO, "n": 2}
            assert (await server.client.post("/v1/chat/completions", json=body)).status_code == 200
            assert (await server.client.post("/v1/chat/completions", json={})).status_code == 400
            for name in ("one", "two"):
                assert (await server.client.get(f"/v1/models/{name}")).status_code == 404
                assert (await server.client.get(f"/{name}")).status_code == 404
            found = await scraped(server)
            arrived = [request.arrived_at for request in server.verifier.requests]
        requests = {
            (labels - {MODEL, "i1"}): value
            for labels, value in found["banditserve_http_requests_total"].items()
        }
        assert requests == {
            frozenset({"/v1/chat/completions", "200"}): 1,
            frozenset({"/v1/chat/completions", "400"}): 1,
            frozenset({"/v1/models/{name:path}", "404"}): 2,
            frozenset({"none", "404"}): 2,
        }
        assert by(found["banditserve_http_requests_in_progress"], "i1") == 1  # the scrape
        assert by(found["banditserve_choices_total"], "finished") == 2
        assert by(found["vllm:request_params_n_sum"], "i1") == 2
        assert len(arrived) == 2
        assert arrived[0] == arrived[1] > 1e9

    asyncio.run(check())


def test_keys_are_asked_for_only_if_configured() -> None:
    async def status(config: MetricsConfig, headers: Mapping[str, str]) -> int:
        async with metered(Others(), config, keys=("secret",)) as server:
            return (await server.client.get("/metrics", headers=headers)).status_code

    async def check() -> None:
        assert await status(MetricsConfig(), {}) == 200
        closed = MetricsConfig(needs_key=True)
        assert await status(closed, {}) == 401
        assert await status(closed, {"Authorization": "Bearer secret"}) == 200

    asyncio.run(check())


def test_vllms_names_keep_their_colon_whatever_format_the_client_would_like() -> None:
    async def check() -> None:
        accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        async with metered(Others()) as server:
            answer = await server.client.get("/metrics", headers=accept)
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "\nvllm:generation_tokens_total{" in answer.text

    asyncio.run(check())
