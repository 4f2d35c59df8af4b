"""Replay: what a drafter would have proposed along a reply that is known, and what of it was right.

Exact, because the text does not depend on what is drafted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.traces.recording import followed
from drafters.api import Drafter, NoiseKey, SessionContext


@dataclass
class Replayed:
    """Counts of the rounds of some replies.

    Attributes:
        rounds: Rounds, those without a draft included.
        drafted: Tokens proposed.
        accepted: Tokens accepted.
        offered_by_depth: Rounds that had a token of this depth on the way of the text.
        accepted_by_depth: Of those, the ones in which it was right.
        draft_ms: Time of each proposal.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    offered_by_depth: list[int] = field(default_factory=list)
    accepted_by_depth: list[int] = field(default_factory=list)
    draft_ms: list[float] = field(default_factory=list)

    @property
    def mean_accepted(self) -> float:
        """Accepted tokens a round."""
        return self.accepted / max(1, self.rounds)

    @property
    def mean_drafted(self) -> float:
        """Proposed tokens a round."""
        return self.drafted / max(1, self.rounds)

    def count(self, deepest: int, num_accepted: int) -> None:
        """Count one round whose draft went ``deepest`` down."""
        self.rounds += 1
        self.accepted += num_accepted
        for depth in range(min(deepest, num_accepted + 1)):
            while len(self.offered_by_depth) <= depth:
                self.offered_by_depth.append(0)
                self.accepted_by_depth.append(0)
            self.offered_by_depth[depth] += 1
            self.accepted_by_depth[depth] += depth < num_accepted


def replay(
    drafter: Drafter, session: str, prompt: Sequence[int], reply: Sequence[int], gamma: int
) -> Replayed:
    """Play one reply, whose first token came with the prompt, with drafts of at most ``gamma``."""
    counted = Replayed()
    context = SessionContext((*prompt, reply[0]), len(prompt), NoiseKey(0, 0, 0.0))
    drafter.open(session, context)
    done = 1
    while done < len(reply):
        started = time.perf_counter()
        draft = drafter.propose([(session, min(gamma, len(reply) - done))])[0]
        counted.draft_ms.append((time.perf_counter() - started) * 1e3)
        verdict = followed(draft, reply[done:])
        counted.drafted += len(draft)
        counted.count(max(draft.depths, default=0), len(verdict.accepted_nodes))
        done += len(verdict.token_ids)
        drafter.extend(session, verdict.token_ids)
    drafter.close(session)
    return counted


def add(first: Replayed, second: Replayed) -> Replayed:
    """Return the counts of both."""
    longest = max(len(first.offered_by_depth), len(second.offered_by_depth))

    def both(a: list[int], b: list[int]) -> list[int]:
        return [sum(part[i] for part in (a, b) if i < len(part)) for i in range(longest)]

    return Replayed(
        first.rounds + second.rounds,
        first.drafted + second.drafted,
        first.accepted + second.accepted,
        both(first.offered_by_depth, second.offered_by_depth),
        both(first.accepted_by_depth, second.accepted_by_depth),
        [*first.draft_ms, *second.draft_ms],
    )
