"""Tokens a second of the engine with a drafter pinned, over no speculation, in one process."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.traces.generation import OFF, ReplyMaker
from policy_service.api import SpeculationOptions
from replicas.api import SamplingParams


def timed_reply(
    maker: ReplyMaker, prompt: Sequence[int], max_tokens: int, options: SpeculationOptions = OFF
) -> tuple[list[int], float]:
    """Return the greedy reply and the tokens a second after the first."""
    sampling = SamplingParams(max_tokens, temperature=0, ignore_eos=True)
    result = maker.generate(prompt, sampling, options=options)
    seconds = (result.stats.total_ms - result.stats.first_token_ms) / 1e3
    return list(result.token_ids), (len(result.token_ids) - 1) / seconds


def pinned(method: str, gamma: int) -> SpeculationOptions:
    """Return the options of a request that leaves no choice."""
    return SpeculationOptions(drafter=method, gamma=gamma)
