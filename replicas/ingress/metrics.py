"""``GET /metrics``: the series of all parts in one scrape, for a single machine.

Where there are many, Prometheus scrapes the parts themselves (``replicas.metrics.exporter``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from replicas.config import MetricsConfig
from replicas.ingress.faults import Fault, classify
from replicas.ingress.handles import BroadcastHandle
from replicas.metrics.exposition import render
from replicas.metrics.part_samples import host_samples, policy_samples
from replicas.metrics.samples import Labels, Sample, by_label

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """Processes of one kind that can be asked.

    Attributes:
        kind: What they are.
        handle: Reaches all of them.
        method: What to ask.
        read: Makes samples of an answer.
    """

    kind: str
    handle: BroadcastHandle
    method: str
    read: Callable[[Any], Iterable[Sample]]


def system_parts(
    model_name: str,
    verifier: BroadcastHandle,
    policy: BroadcastHandle,
    drafter_hosts: Mapping[str, BroadcastHandle],
) -> list[Part]:
    """Return all parts but the Ingresses."""
    read_host = partial(host_samples, model_name=model_name)
    return [
        Part("verifier", verifier, "metric_samples", list),
        Part("policy", policy, "status", partial(policy_samples, model_name=model_name)),
        *(Part("drafter", handle, "status", read_host) for handle in drafter_hosts.values()),
    ]


class Scraper:
    """Gathers the samples of all parts. Never fails: who does not answer is left out and counted.

    Args:
        config: How long parts may take, and which names to show.
        labels: The model's name and this Ingress'.
        own_samples: Returns what this Ingress counts itself.
        parts: Returns the others.
    """

    def __init__(
        self,
        config: MetricsConfig,
        labels: Labels,
        own_samples: Callable[[], Iterable[Sample]],
        parts: Callable[[], Iterable[Part]],
    ) -> None:
        self._config = config
        self._labels = labels
        self._own_samples = own_samples
        self._parts = parts
        self._num_up: dict[str, int] = {}
        self._num_missed: Counter[str] = Counter()

    @property
    def needs_key(self) -> bool:
        """Whether clients must present an API key."""
        return self._config.needs_key

    async def scrape(self) -> bytes:
        """Return the body of a scrape."""
        parts = list(self._parts())
        answers = await asyncio.gather(*(self._ask(part) for part in parts))
        num_up = dict.fromkeys((part.kind for part in parts), 0)
        samples: list[Sample] = []
        for part, (found, num_missed) in zip(parts, answers, strict=True):
            num_up[part.kind] += len(found)
            self._num_missed[part.kind] += num_missed
            samples += (sample for one in found for sample in one)
        self._num_up = num_up
        # On a thread: some milliseconds a Verifier, for which no stream should wait.
        everything = [*self.own_samples(), *samples]
        return await asyncio.to_thread(render, everything, self._config.vllm_names)

    def own_samples(self) -> Iterator[Sample]:
        """Yield what this Ingress has to say itself."""
        yield from self._own_samples()
        yield from by_label("banditserve_parts_up", self._labels, "part", self._num_up.items())
        yield from by_label(
            "banditserve_scrape_misses_total", self._labels, "part", self._num_missed.items()
        )

    async def _ask(self, part: Part) -> tuple[list[list[Sample]], int]:
        """Return the samples of those that answered, and how many did not."""
        try:
            answers = await part.handle.broadcast(part.method).results_async(
                timeout_s=self._config.timeout_s, return_exceptions=True
            )
        except Exception as error:  # a boundary: who does not answer is away, whatever the reason
            if classify(error) is Fault.UNAVAILABLE:
                return [], 0  # there is none, as of a drafter that nobody needs
            logger.warning("no metrics of any %s: %s", part.kind, type(error).__name__)
            return [], 1
        found = []
        for answer in answers:
            try:
                if isinstance(answer, BaseException):
                    raise answer
                found.append(list(part.read(answer)))
            except Exception as error:  # a boundary: it may also be of another version
                logger.warning("no metrics of a %s: %s", part.kind, type(error).__name__)
        return found, len(answers) - len(found)
