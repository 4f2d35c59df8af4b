"""The request router on a real Ray Serve: prefixes are followed, loaded and failed ones avoided."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Serve warns about itself while it is imported
    from ray import serve

from replicas.api import GenerationRequest, GenerationResult, SamplingParams
from replicas.config import RoutingConfig
from replicas.router import router_config
from tests.integration.scripted_verifier import ScriptedVerifier

pytestmark = pytest.mark.ray

PAGE = 16
PREFIX_PAGES = 12
LONG = 100
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def generate(serve_port: int) -> Any:
    make: Any = serve.deployment
    verifier = make(
        ScriptedVerifier,
        num_replicas=3,
        ray_actor_options={"num_cpus": 0.1},
        request_router_config=router_config(RoutingConfig(), PAGE),
    )
    return serve.run(verifier.bind(), name="routed", route_prefix=None).generate


def request(
    name: str, prefix: int, max_tokens: int = 1, earlier: tuple[str, ...] = ()
) -> GenerationRequest:
    """Return a request whose prompt begins as all with this prefix do, and ends as none does."""
    prompt = (prefix,) * (PAGE * PREFIX_PAGES) + tuple(name.encode())
    sampling = SamplingParams(max_tokens=max_tokens)
    return GenerationRequest(name, prompt, sampling, seed=1, earlier_attempts=earlier)


def served_by(generate: Any, one: GenerationRequest) -> str:
    result: GenerationResult = generate.remote(one).result(timeout_s=TIMEOUT_S)
    return result.replica


def test_what_begins_alike_goes_to_the_same_verifier(generate: Any) -> None:
    for prefix in range(1, 7):
        homes = {served_by(generate, request(f"p{prefix}-{n}", prefix)) for n in range(5)}
        assert len(homes) == 1
    # others with nothing in common are spread
    assert len({served_by(generate, request(f"o{n}", 100 + n)) for n in range(30)}) == 3


def test_a_loaded_verifier_is_avoided_once_its_queue_costs_more(generate: Any) -> None:
    """12 pages outweigh 3 requests: of six long ones at a time some go elsewhere."""
    home = served_by(generate, request("first", 50))
    running = [generate.remote(request(f"long{n}", 50, LONG)) for n in range(9)]
    replicas = [one.result(timeout_s=TIMEOUT_S).replica for one in running]
    assert 3 <= replicas.count(home) <= 5
    assert set(replicas) != {home}
    assert served_by(generate, request("later", 50)) in set(replicas)


def test_a_retry_goes_to_none_that_had_the_request(generate: Any) -> None:
    first = served_by(generate, request("r", 60))
    second = served_by(generate, request("r.2", 60, earlier=("r",)))
    third = served_by(generate, request("r.3", 60, earlier=("r", "r.2")))
    assert len({first, second, third}) == 3
    assert served_by(generate, request("r.4", 60, earlier=("r", "r.2", "r.3")))
