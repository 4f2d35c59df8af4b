"""What a step's rounds teach of contexts and prompts; changes only what it is given to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policy_service.api import Outcome
from policy_service.goodput.cells import EMPTY, MAX_DEPTH, columns_of, offered_tokens
from policy_service.goodput.contexts import ContextRates
from policy_service.goodput.effects import learnt
from policy_service.goodput.evidence import Counted, Evidence
from policy_service.goodput.rates import expit
from policy_service.goodput.seats import Indices, Seats
from policy_service.goodput.settings import Settings


@dataclass(slots=True)
class Lessons:
    """Rounds of a step that a drafter answered.

    Attributes:
        rows: Of each the prompt's seat, the drafter's number, and how many tokens its draft had,
            were offered if it is a chain, and were accepted.
        trees: Of those that were trees, which columns were offered and accepted, by row.
    """

    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    trees: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)

    def add(self, seat: int, drafter: int, outcome: Outcome) -> None:
        """Add a round.

        Where the reply ended with the last accepted token, what comes after it was not looked at.
        """
        accepted = outcome.num_accepted
        seen = accepted + 1 if outcome.num_emitted > accepted else accepted
        if seen > outcome.num_verified:
            seen = outcome.num_verified
        self.rows.append((seat, drafter, outcome.num_drafted, seen, accepted))

    def add_tree(
        self, parents: tuple[int, ...], outcome: Outcome, accepted_nodes: Sequence[int]
    ) -> None:
        """Say of the round just added that its draft was a tree; its length is its depth.

        Args:
            parents: Of each token of the draft.
            outcome: What came of it.
            accepted_nodes: Those accepted.
        """
        has_ended = outcome.num_emitted <= outcome.num_accepted
        verified = parents[: outcome.num_verified]
        nodes = offered_tokens(verified, accepted_nodes, has_ended=has_ended)
        columns = columns_of(parents)
        self.trees[len(self.rows) - 1] = [(columns[node], is_it) for node, is_it in nodes]
        depth = max(column for column in columns if column <= MAX_DEPTH)
        seat, drafter, _, seen, accepted = self.rows[-1]
        self.rows[-1] = seat, drafter, depth, seen, accepted


def learn(
    lessons: Lessons,
    seats: Seats,
    rates: ContextRates,
    evidence: Evidence,
    settings: Settings,
    precision: float,
    columns: Indices,
) -> None:
    """Learn from a step's drafts.

    Args:
        lessons: The drafts.
        seats: Changed.
        rates: What was expected.
        evidence: Counted in.
        settings: Parameters.
        precision: Of prompts' shifts.
        columns: Of a chain's tokens.
    """
    index, drafters, lengths, seen, hits = np.array(lessons.rows).T
    cells, offered, accepted = _tokens(seen, hits, lessons.trees, columns)
    buckets = seats.bucket[index]
    chains = seats.chains[index]
    place = (index, drafters)
    scored = np.where(buckets == EMPTY, 0, buckets)  # nothing was offered of an empty draft
    logits = rates.logits[chains[:, :1], drafters[:, None], scored[:, None], cells]
    effects = seats.effects.at(*place)
    odds = np.stack((logits, logits + effects.shift[:, None]))
    expected = expit(odds) * offered
    surprise = (accepted - expected).sum(axis=2)
    spread = (expected * (1 - expected)).sum(axis=2)
    new = learnt(effects, surprise[1], spread[1], precision=precision, threshold=settings.change)
    seats.effects.put(new, *place)
    seats.surprises[:, index, drafters] += surprise[0], spread[0]
    seats.seen[index, drafters, buckets] += 1.0
    seats.touch(index, drafters)
    lengths = np.where(lengths >= seats.asked[index], MAX_DEPTH, lengths)
    evidence.add(Counted(chains, drafters, buckets, lengths, cells, offered, accepted))


def _tokens(
    seen: Indices,
    hits: Indices,
    trees: Mapping[int, list[tuple[int, bool]]],
    columns: Indices,
) -> tuple[Indices, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return cell, whether it was offered and whether it was accepted, of each draft's tokens."""
    numbers = np.arange(len(columns))
    offered = numbers < seen[:, None]
    accepted = numbers < hits[:, None]
    cells = np.broadcast_to(columns, offered.shape)
    if trees:
        cells = cells.copy()
    for row, nodes in trees.items():
        nodes = nodes[: len(columns)]
        offered[row] = numbers < len(nodes)
        accepted[row] = False
        cells[row, : len(nodes)] = [column for column, _ in nodes]
        accepted[row, : len(nodes)] = [is_it for _, is_it in nodes]
    return cells, offered, accepted & offered
