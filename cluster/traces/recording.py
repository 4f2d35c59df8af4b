"""Make a trace: what every drafter would have proposed at every position of known replies.

Each reply is walked token by token, and at every position each drafter is asked for drafts of every
size, for a short draft need not be the beginning of a long one. Replies are walked in the order
they were served, each session closed before the next is opened, so a drafter that learns from
replies knows all earlier ones and none that come later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count

import numpy as np

from cluster.errors import TraceError
from cluster.traces.format import Drafts, Trace, TracedRequest
from drafters.api import Draft, Drafter, NoiseKey, SessionContext
from drafters.features import needs_hidden_states
from policy_service.api import RequestFeatures
from policy_service.step_times import StepTimes
from replicas.engine.verification import Verdict, verify_draft


@dataclass(frozen=True, slots=True)
class Reply:
    """One request with its tokens, to be recorded.

    Attributes:
        id: The prompt's.
        workload: What kind of load it belongs to.
        category: A finer kind.
        features: What the policy may know of it.
        prompt: Tokens of the prompt.
        tokens: Tokens of the reply, its end of sequence included; at least 1.
        noise: Key of the sampling noise.
    """

    id: str
    workload: str
    category: str
    features: RequestFeatures
    prompt: Sequence[int]
    tokens: Sequence[int]
    noise: NoiseKey


class Recorder:
    """Collects what drafters propose along replies.

    Args:
        drafters: By name.
        max_size: Largest draft to ask for.
        clock: Seconds from any start.

    Raises:
        TraceError: If a drafter works from the target's hidden states, which no trace has.
    """

    def __init__(
        self, drafters: Mapping[str, Drafter], max_size: int, clock: Callable[[], float]
    ) -> None:
        for name, drafter in drafters.items():
            if needs_hidden_states(drafter):
                raise TraceError(
                    f"drafter {name!r} cannot be recorded: it works from the target's hidden "
                    "states, and drafts are recorded from tokens alone"
                )
        self._drafters = dict(drafters)
        self._max_size = max_size
        self._clock = clock
        self._requests: list[TracedRequest] = []
        self._parts: dict[str, list[Drafts]] = {name: [] for name in drafters}

    def record(self, reply: Reply) -> None:
        """Add a reply, after those added before."""
        first = self._requests[-1] if self._requests else None
        request = TracedRequest(
            reply.id,
            reply.workload,
            reply.category,
            reply.features,
            len(reply.prompt),
            len(reply.tokens),
            first.first + first.num_positions if first else 0,
        )
        for name, drafter in self._drafters.items():
            session = f"t{len(self._requests)}"
            self._parts[name].append(
                _drafts_along(drafter, session, reply, self._max_size, self._clock)
            )
        self._requests.append(request)

    def trace(
        self, *, model: str, machine: str, temperature: float, max_tokens: int, times: StepTimes
    ) -> Trace:
        """Return everything recorded so far, with what a trace says of where it comes from."""
        return Trace(
            model=model,
            machine=machine,
            temperature=temperature,
            max_tokens=max_tokens,
            max_size=self._max_size,
            step_times=times,
            versions={name: drafter.version for name, drafter in self._drafters.items()},
            requests=tuple(self._requests),
            drafts={name: _joined(parts, self._max_size) for name, parts in self._parts.items()},
        )


def _drafts_along(
    drafter: Drafter, session: str, reply: Reply, max_size: int, clock: Callable[[], float]
) -> Drafts:
    """Return what one drafter proposes at every position of one reply."""
    tokens = list(reply.tokens)
    drafts = _empty(len(tokens) - 1, max_size)
    context = SessionContext(
        (*reply.prompt, tokens[0]), len(reply.prompt), reply.noise, reply.features.tenant
    )
    drafter.open(session, context)
    for position in range(len(tokens) - 1):
        rest = tokens[position + 1 :]
        for size in range(1, max_size + 1):
            started = clock()
            (draft,) = drafter.propose([(session, size)])
            drafts.ms[position, size - 1] = (clock() - started) * 1e3
            _enter(drafts, position, size - 1, draft, rest)
        drafter.extend(session, rest[:1])
    drafter.close(session)
    return drafts


def _enter(drafts: Drafts, position: int, column: int, draft: Draft, rest: Sequence[int]) -> None:
    """Note one draft and what of it ``rest`` follows."""
    drafts.lengths[position, column] = len(draft)
    drafts.scores[position, column] = draft.score
    drafts.parents[position, column, : len(draft)] = draft.parents
    accepted = sum(1 << node for node in followed(draft, rest).accepted_nodes)
    drafts.accepted[position, column] = accepted


def followed(draft: Draft, rest: Sequence[int]) -> Verdict:
    """Return what verification makes of a draft where the reply goes on, and ends, with ``rest``.

    >>> from drafters.api import chain
    >>> followed(chain([5, 6, 7]), [5, 6, 9, 9])
    Verdict(token_ids=(5, 6, 9), accepted_nodes=(0, 1))
    """
    return verify_draft(draft, _next_of(iter(rest)), _ends_after(len(rest)))


def _next_of(tokens: Iterator[int]) -> Callable[[int], int]:
    return lambda node: next(tokens)


def _ends_after(num_tokens: int) -> Callable[[int], bool]:
    emitted = count(1)
    return lambda token: next(emitted) == num_tokens


def _empty(num_positions: int, max_size: int) -> Drafts:
    shape = (num_positions, max_size)
    return Drafts(
        np.zeros(shape, np.uint8),
        np.zeros(shape, np.uint64),
        np.zeros((*shape, max_size), np.int8),
        np.zeros(shape, np.float64),
        np.zeros(shape, np.float32),
    )


def _joined(parts: Sequence[Drafts], max_size: int) -> Drafts:
    """Return the drafts of all replies, one after the other."""
    empty = _empty(0, max_size)
    return replace(
        empty,
        **{
            one.name: np.concatenate([getattr(part, one.name) for part in (empty, *parts)])
            for one in fields(Drafts)
        },
    )
