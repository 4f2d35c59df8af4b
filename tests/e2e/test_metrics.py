"""A live scrape: what a running system measured is what its clients were told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from cluster.workloads import read_prompts
from replicas.metrics.catalogue import CATALOGUE
from tests.e2e.client import MODEL, chat_all, openai_client
from tests.system import System

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.model]

COPY = "Repeat these words three times: red green blue yellow red green blue yellow"
"""Makes a reply that repeats, so that any drafter has drafts accepted."""


@dataclass(frozen=True)
class Scrape:
    """What one scrape showed.

    Attributes:
        values: By sample name, labels and value of each of its lines.
    """

    values: Mapping[str, list[tuple[dict[str, str], float]]]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a series over all labels but these."""
        lines = self.values.get(name, [])
        return sum(value for known, value in lines if labels.items() <= known.items())


def scrape(url: str) -> Scrape:
    answer = httpx.get(url, timeout=30.0)
    answer.raise_for_status()
    values: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            values.setdefault(sample.name, []).append((sample.labels, sample.value))
    return Scrape(values)


def speculation_usage(client: OpenAI, drafter: str) -> dict[str, Any]:
    """Generate a reply with drafts of one drafter; return what the response says of them."""
    completion = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": COPY}],
        temperature=0,
        max_tokens=48,
        extra_body={"speculation": {"drafter": drafter, "gamma": 4}, "ignore_eos": True},
    )
    extra = completion.model_extra or {}
    assert completion.usage is not None
    usage: dict[str, Any] = completion.usage.model_dump()
    return {**usage, **extra["metrics"]["speculative_decoding"]}


@dataclass(frozen=True)
class Measured:
    """Some requests, and the scrapes before and after them.

    Attributes:
        before: The scrape before.
        after: The scrape after.
        usages: What the responses said, by the way of asking.
    """

    before: Scrape
    after: Scrape
    usages: Mapping[str, list[dict[str, Any]]]

    def grown(self, name: str, **labels: str) -> float:
        """Return by how much a counter has grown."""
        return self.after.total(name, **labels) - self.before.total(name, **labels)

    def used(self, key: str) -> int:
        """Return a sum over all responses."""
        return sum(int(usage[key]) for usages in self.usages.values() for usage in usages)


@pytest.fixture(scope="module")
def measured(system: System) -> Measured:
    client = openai_client(system.base_url)
    url = f"{system.base_url}/metrics"
    system.wait_until(lambda: is_idle(scrape(url)), "earlier requests to end")
    before = scrape(url)
    prompts = read_prompts()[:6]
    streamed = chat_all(client, prompts, stream=True, temperature=0, max_tokens=16)
    pinned = [speculation_usage(client, name) for name in ("prompt_lookup", "suffix")]
    system.wait_until(lambda: is_idle(scrape(url)), "the requests to end")
    usages = {"streamed": [reply.usage for reply in streamed], "pinned": pinned}
    return Measured(before, scrape(url), usages)


def is_idle(found: Scrape) -> bool:
    running = found.total("vllm:num_requests_running") + found.total("vllm:num_requests_waiting")
    return running == 0 and found.total("banditserve_parts_up", part="verifier") == 1


def test_tokens_are_the_sums_of_the_clients_usages(measured: Measured) -> None:
    assert measured.grown("vllm:prompt_tokens_total") == measured.used("prompt_tokens")
    assert measured.grown("vllm:generation_tokens_total") == measured.used("completion_tokens")
    num_replies = sum(map(len, measured.usages.values()))
    assert measured.grown("vllm:request_success_total") == num_replies
    for name in ("e2e_request_latency", "time_to_first_token", "request_queue_time"):
        assert measured.grown(f"vllm:{name}_seconds_count") == num_replies
    assert measured.grown("vllm:request_generation_tokens_sum") == measured.used(
        "completion_tokens"
    )


def test_pinned_arms_count_what_their_responses_say(measured: Measured) -> None:
    for name, usage in zip(("prompt_lookup", "suffix"), measured.usages["pinned"], strict=True):
        arm = {"drafter": name, "gamma": "4", "learner": "fixed"}
        accepted = measured.grown("specdec_accepted_tokens_total", **arm)
        assert accepted == usage["num_accepted_draft_tokens"] > 0
        assert measured.grown("specdec_draft_tokens_total", **arm) == usage["num_draft_tokens"]


def test_speculation_under_vllms_names_is_the_sum_over_arms(measured: Measured) -> None:
    for scraped in (measured.before, measured.after):
        for what in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos"):
            ours = scraped.total(f"specdec_{what}_total")
            assert scraped.total(f"vllm:spec_decode_num_{what}_total") == ours
    after = measured.after
    accepted = after.total("specdec_accepted_tokens_total")
    assert accepted == after.total("specdec_accepted_tokens_per_pos_total") > 0
    assert after.total("specdec_emitted_tokens_total") <= after.total(
        "vllm:generation_tokens_total"
    )


def test_every_series_of_the_catalogue_is_there(measured: Measured) -> None:
    missing = {
        series.name: series.after
        for series in CATALOGUE.values()
        if not all(measured.after.values.get(name) for name in series.sample_names())
    }
    assert missing == {}


def test_every_process_shows_its_own_series_on_its_own_port(
    system: System, measured: Measured
) -> None:
    status = system.status()
    ports = {
        "ingress": status["ingress"]["metrics_port"],
        "policy": status["policy"]["report"]["metrics_port"],
        "verifier": status["verifiers"][0]["report"]["metrics_port"],
        "drafter": status["drafters"]["suffix"][0]["report"]["metrics_port"],
    }
    assert all(ports.values())
    assert len(set(ports.values())) == 4
    for part, port in ports.items():
        found = scrape(f"http://127.0.0.1:{port}/metrics")
        expected = {
            name
            for series in CATALOGUE.values()
            for name in series.sample_names()
            if series.part == part
        }
        assert set(found.values) == expected, part
    verifier = scrape(f"http://127.0.0.1:{ports['verifier']}/metrics")
    generated = "vllm:generation_tokens_total"
    assert verifier.total(generated) == measured.after.total(generated)
