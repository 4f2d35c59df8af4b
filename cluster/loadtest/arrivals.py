"""When requests come and what they ask for, drawn ahead of time from a seed; pure.

Open loop: arrivals are a Poisson process that does not look at the system, so a slow system gets no
fewer requests, as it would from users who wait for their answer first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.loadtest.prompts import Pools
from cluster.loadtest.scenario import Phase, RequestSettings, Scenario
from cluster.workloads import Prompt


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to be sent.

    Attributes:
        index: Its place in the order of sending.
        at_s: When, in seconds from the start.
        phase: Name of the phase.
        workload: Name under which the mix called for it.
        prompt: What is asked; of several turns the first.
        seed: Of the sampling.
        settings: What else it asks for.
    """

    index: int
    at_s: float
    phase: str
    workload: str
    prompt: Prompt
    seed: int
    settings: RequestSettings


def draw_arrivals(scenario: Scenario, pools: Pools, seed: int) -> list[Arrival]:
    """Return all requests of a scenario, oldest first; the same for the same seed.

    Prompts of a workload come in random order, each once before any comes again.
    """
    decks = {name: _Deck(pools[name], random.Random(f"{seed}/{name}")) for name in pools}
    arrivals: list[Arrival] = []
    start_s = 0.0
    for number, phase in enumerate(scenario.phases):
        rng = random.Random(f"{seed}/{number}")
        for at_s in poisson_times(phase, rng):
            workload = rng.choices(list(phase.mix), list(phase.mix.values()))[0]
            settings = phase.request or scenario.request
            prompt = decks[workload].draw()
            number_so_far = len(arrivals)
            arrivals.append(
                Arrival(
                    number_so_far,
                    start_s + at_s,
                    phase.name,
                    workload,
                    prompt,
                    rng.getrandbits(31),
                    settings,
                )
            )
        start_s += phase.duration_s
    return arrivals


def poisson_times(phase: Phase, rng: random.Random) -> Iterator[float]:
    """Yield the times of a Poisson process whose rate changes evenly, in seconds from its start.

    By thinning (Lewis and Shedler 1979): points of the highest rate, each kept with the share of it
    that the rate there has.
    """
    highest = max(phase.rate, phase.last_rate)
    at_s = 0.0
    while highest > 0:
        at_s += rng.expovariate(highest)
        if at_s >= phase.duration_s:
            return
        share = at_s / phase.duration_s
        rate = phase.rate + (phase.last_rate - phase.rate) * share
        if rng.random() * highest < rate:
            yield at_s


class _Deck:
    """Draws without replacement, shuffled anew when all have been drawn."""

    def __init__(self, prompts: Sequence[Prompt], rng: random.Random) -> None:
        self._prompts = list(prompts)
        self._rng = rng
        self._left: list[Prompt] = []

    def draw(self) -> Prompt:
        if not self._left:
            self._left = self._rng.sample(self._prompts, len(self._prompts))
        return self._left.pop()
