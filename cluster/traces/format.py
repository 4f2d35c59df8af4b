"""What a trace holds. Pure; its file is ``cluster.traces.files``.

A trace holds no text. Of every position of every reply it has what each drafter proposed when asked
for 1, 2, ... ``max_size`` tokens: how long the draft was, its shape, which of its nodes the reply
then followed, its score and how long it took. The reply does not depend on what is drafted, so that
is all that is needed to replay any choice of arms exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from policy_service.api import RequestFeatures
from policy_service.step_times import StepTimes

MAX_SIZE = 64
"""Largest draft that can be recorded: its nodes are the bits of an integer."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """What one drafter proposed; ``[position, size - 1]`` is for a draft of at most ``size``.

    Attributes:
        lengths: Nodes of the draft, ``[num_positions, max_size]``.
        accepted: Bit ``i`` is set if the reply went through node ``i``,
            ``[num_positions, max_size]``. Of the draft's first ``n`` nodes those among the lowest
            ``n`` bits are accepted, for the draft lists parents first.
        parents: Parent of each node, -1 for the last token of the context; beyond the draft 0;
            ``[num_positions, max_size, max_size]``.
        scores: The drafter's own, ``[num_positions, max_size]``.
        ms: Time of the proposal in milliseconds, ``[num_positions, max_size]``.
    """

    lengths: NDArray[np.uint8]
    accepted: NDArray[np.uint64]
    parents: NDArray[np.int8]
    scores: NDArray[np.float64]
    ms: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request and its reply.

    Attributes:
        id: The prompt's.
        workload: What kind of load it belongs to.
        category: A finer kind.
        features: What the policy may know of it.
        num_prompt: Tokens of the prompt.
        num_tokens: Tokens of the reply, its end of sequence included; at least 1.
        first: Index of its first position. Position ``first + i`` is where ``i + 1`` tokens of the
            reply are known, so it has ``num_tokens - 1`` positions.
    """

    id: str
    workload: str
    category: str
    features: RequestFeatures
    num_prompt: int
    num_tokens: int
    first: int

    @property
    def num_positions(self) -> int:
        """Positions at which something could be drafted."""
        return self.num_tokens - 1


@dataclass(frozen=True, slots=True)
class Trace:
    """Replies of one model, with what each drafter proposed along them.

    Attributes:
        model: Name of the target model.
        machine: Where it was recorded.
        temperature: Of the replies; 0 is greedy.
        max_tokens: Most tokens of a reply.
        max_size: Largest draft asked for.
        step_times: How long steps take there.
        versions: Version of each drafter.
        requests: In the order they were served, which matters to drafters that learn from replies.
        drafts: By drafter.
    """

    model: str
    machine: str
    temperature: float
    max_tokens: int
    max_size: int
    step_times: StepTimes
    versions: Mapping[str, str]
    requests: tuple[TracedRequest, ...]
    drafts: Mapping[str, Drafts] = field(repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.max_size <= MAX_SIZE:
            raise ValueError(f"max_size must lie in 1..{MAX_SIZE}, got {self.max_size}")
        if set(self.versions) != set(self.drafts):
            raise ValueError(f"expected drafts of {list(self.versions)}, got {list(self.drafts)}")
        positions = _check_requests(self.requests)
        for name, drafts in self.drafts.items():
            for one in fields(drafts):
                shape = getattr(drafts, one.name).shape
                expected = (positions, self.max_size) + (self.max_size,) * (one.name == "parents")
                if shape != expected:
                    raise ValueError(f"{name}.{one.name} is {shape}, expected {expected}")


def _check_requests(requests: tuple[TracedRequest, ...]) -> int:
    """Return the number of positions of all requests, which follow each other."""
    positions = 0
    for request in requests:
        if request.num_tokens < 1 or request.first != positions:
            raise ValueError(
                f"request {request.id!r} has {request.num_tokens} tokens and begins at position "
                f"{request.first}; expected at least 1, and position {positions}"
            )
        positions += request.num_positions
    return positions
