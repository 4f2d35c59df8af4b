"""Every series is read from what the parts really say: their reports, not made-up ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pytest

from drafters.api import NoiseKey
from drafters.client import DrafterClient, DraftWanted
from drafters.config import DrafterConfig
from drafters.sessions import ServerLoad
from policy_service.client import PolicyClient
from policy_service.config import PolicyConfig
from policy_service.memory_store import MemoryStore
from policy_service.service import PolicyService
from replicas.engine.counters import EngineCounters
from replicas.ingress.meter import IngressMeter
from replicas.metrics.catalogue import CATALOGUE
from replicas.metrics.engine_meter import EngineMeter
from replicas.metrics.part_samples import host_samples, policy_samples
from replicas.metrics.samples import Distribution, Sample
from replicas.metrics.series import Part
from replicas.metrics.verifier_samples import verifier_samples

ENGINE = {"model_name": "m", "engine": "v1"}


def check(samples: Iterable[Sample]) -> set[str]:
    """Return the names of samples, once it is sure that the catalogue has them as they are."""
    found = set()
    for sample in samples:
        series = CATALOGUE[sample.name]
        assert sample.labels.keys() == set(series.labels), sample
        if isinstance(sample.value, Distribution):
            assert sample.value.bounds == pytest.approx(series.buckets)
        else:
            assert series.kind != "histogram"
        found.add(sample.name)
    return found


def of_part(part: Part, *, from_the_start: bool) -> set[str]:
    return {
        name
        for name, series in CATALOGUE.items()
        if series.part == part and (not from_the_start or not series.after)
    }


def drafters() -> DrafterClient:
    """Return a client that was asked once for a draft that came, and once for one that did not."""
    client = DrafterClient(
        {"near": DrafterConfig(placement="in_process"), "far": DrafterConfig(placement="worker")}
    )
    tokens = [5, 6, 7, 8, 5, 6, 7]
    wanted = [
        DraftWanted("a", drafter, 4, tokens, len(tokens), NoiseKey(0, 0, 0.0), "")
        for drafter in ("near", "far")
    ]
    near, far = client.draft(wanted)
    assert (near.status, far.status) == ("ok", "away")
    client.observe("near", near.draft, {0, 1})
    return client


def policy_status() -> dict[str, Any]:
    client = PolicyClient(PolicyConfig(), "v1", "i1", "m", None, {}, seed=0)
    return {**client.status(), "snapshot_age_s": 3.0}


def report(client: DrafterClient) -> dict[str, Any]:
    """Return a report as ``VerifierDeployment.report`` makes it, of real parts."""
    return {
        "problem": None,
        "cache_tokens": 4096,
        "num_running": 2,
        "num_waiting": 3,
        "cache_usage": 0.5,
        "num_preemptions": 1,
        "loop": {
            "num_arriving": 1,
            "num_rejected": 4,
            "seconds_since_step": 0.5,
            "step_running_s": 0.0,
        },
        "work": dict.fromkeys(
            (
                *("queued_tokens", "blocked_tokens", "reply_tokens"),
                *("prompt_tokens_per_s", "reply_tokens_per_s"),
            ),
            7.0,
        ),
        **asdict(EngineCounters(steps=9)),
        "policy": policy_status(),
        "drafters": client.status(),
        "open_draft_sessions": client.num_open,
    }


@pytest.fixture
def samples() -> list[Sample]:
    client = drafters()
    try:
        return list(verifier_samples(report(client), ENGINE))
    finally:
        client.stop()


def values(samples: Iterable[Sample], name: str, **labels: str) -> list[Any]:
    return [
        sample.value
        for sample in samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def test_a_verifier_has_every_series_that_needs_no_event(samples: list[Sample]) -> None:
    meter = EngineMeter()
    meter.expect(["near", "far"])
    found = check([*samples, *meter.samples(ENGINE)])
    assert found >= of_part("verifier", from_the_start=True)
    assert found <= of_part("verifier", from_the_start=False)


def test_waiting_requests_are_told_apart_and_add_up(samples: list[Sample]) -> None:
    assert values(samples, "vllm:num_requests_waiting") == [4]
    by_reason = "vllm:num_requests_waiting_by_reason"
    assert values(samples, by_reason, reason="capacity") == [3]
    assert values(samples, by_reason, reason="step") == [1]


def test_what_a_drafter_cost_is_shown_by_drafter_and_depth(samples: list[Sample]) -> None:
    proposed = values(samples, "specdec_proposed_tokens_per_pos_total", drafter="near")
    assert proposed == values(samples, "specdec_verified_tokens_per_pos_total", drafter="near")
    assert proposed == [1.0] * 4
    assert values(samples, "specdec_sent_tokens_total", drafter="near") == [7]
    [times] = values(samples, "specdec_draft_time_seconds", drafter="near")
    assert sum(times.counts) == 1
    assert 0 < times.total < 10
    failures = "specdec_draft_failures_total"
    assert values(samples, failures, drafter="far", reason="away") == [1]
    assert sum(values(samples, failures)) == 1
    usable = "banditserve_drafter_usable"
    assert values(samples, usable, drafter="near") == [1]
    assert values(samples, usable, drafter="far") == [0]


def test_the_policy_has_every_series() -> None:
    service = PolicyService(PolicyConfig(), MemoryStore(), "m", lambda: 1e9)
    asyncio.run(service.publish())
    status = {**service.status(), "publish_errors": 0}
    assert check(policy_samples(status, "m")) == of_part("policy", from_the_start=True)


def test_a_drafters_host_has_every_series_and_without_a_worker_says_that_it_has_none() -> None:
    status = {"name": "near", "replica_id": "h1", "up": True, "restarts": 0}
    worker = {"num_refused_calls": 0, **asdict(ServerLoad(busy_ms=1500.0))}
    found = list(host_samples({**status, "worker": worker}, "m"))
    assert check(found) == of_part("drafter", from_the_start=True)
    assert values(found, "banditserve_drafter_busy_seconds_total") == [1.5]
    lost = list(host_samples({**status, "up": False, "worker": {}}, "m"))
    assert values(lost, "banditserve_drafter_up") == [0]
    assert check(lost) == {"banditserve_drafter_up", "banditserve_drafter_restarts_total"}


def test_an_ingress_has_every_series_that_needs_no_event() -> None:
    meter = IngressMeter()
    names = check(meter.samples("m", "i1", {}))
    assert names >= of_part("ingress", from_the_start=True)
    meter.count_request("/v1/models", 200)
    assert check(meter.samples("m", "i1", {})) == names | {"banditserve_http_requests_total"}
