"""The port on which a process shows its own series."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.redis_server import free_port
from replicas.config import MetricsConfig
from replicas.metrics.exporter import NUM_PORTS, MetricsPort, sample_exporter
from replicas.metrics.samples import Sample

SAMPLE = Sample("vllm:prompt_tokens_total", {"model_name": "m", "engine": "v1"}, 7.0)


async def says_sample() -> list[Sample]:
    return [SAMPLE]


async def scrape(port: MetricsPort) -> httpx.Response:
    async with httpx.AsyncClient(timeout=10.0) as client:
        return await client.get(f"http://127.0.0.1:{port.number}/metrics")


@contextmanager
def taken(first: int, number: int) -> Iterator[None]:
    """Hold ports, as far as nobody else does."""
    held = []
    try:
        for port in range(first, first + number):
            holder = socket.socket()
            held.append(holder)
            try:
                holder.bind(("127.0.0.1", port))
                holder.listen()
            except OSError:
                continue
        yield
    finally:
        for holder in held:
            holder.close()


def test_a_scrape_reads_what_the_part_says_now() -> None:
    async def check() -> None:
        port = sample_exporter(MetricsConfig(port=free_port())).open(says_sample)
        try:
            answer = await scrape(port)
            [family] = text_string_to_metric_families(answer.text)
            assert [sample.value for sample in family.samples] == [7.0]
        finally:
            port.close()
        with pytest.raises(httpx.ConnectError):
            await scrape(port)

    asyncio.run(check())


def test_the_next_free_port_is_taken() -> None:
    async def check() -> None:
        first = free_port()
        exporter = sample_exporter(MetricsConfig(port=first))
        with taken(first, 2):
            ports = [exporter.open(says_sample) for _ in range(2)]
            try:
                assert first + 1 < ports[0].number < ports[1].number < first + NUM_PORTS
                assert (await scrape(ports[1])).status_code == 200
            finally:
                for port in ports:
                    port.close()

    asyncio.run(check())


def test_without_a_free_port_and_with_port_0_the_part_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        first = free_port()
        with taken(first, NUM_PORTS):
            assert sample_exporter(MetricsConfig(port=first)).open(says_sample).number == 0
        assert "no free port" in caplog.text
        assert sample_exporter(MetricsConfig(port=0))(says_sample) == 0

    asyncio.run(check())


def test_a_part_that_does_not_answer_in_time_fails_the_scrape(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hangs() -> list[Sample]:
        await asyncio.Event().wait()
        return []

    async def check() -> None:
        config = MetricsConfig(port=free_port(), timeout_s=0.1)
        port = sample_exporter(config).open(hangs)
        try:
            assert (await scrape(port)).status_code == 500
        finally:
            port.close()

    asyncio.run(check())
    assert "TimeoutError" in caplog.text
