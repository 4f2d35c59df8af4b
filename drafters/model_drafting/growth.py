"""Grow one draft: which nodes are computed next and which become the draft. Pure.

EAGLE-2 (Li et al. 2024, arXiv:2406.16858), section 4: a node's value is the product of the draft
model's probabilities along its path, which is how likely the node is to be accepted. Expansion:
at each depth the ``beam`` nodes of highest value are computed, and each gets children. Reranking:
of all nodes those of highest value are the draft. A child's value is never above its parent's, so
these form a tree.

Beyond the paper: a node behind which the draft has no place left is not computed. Its descendants
rank behind it, so the draft is the same and costs less, most of all where it is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from drafters.api import EMPTY_DRAFT, ROOT, Draft


class Candidates(NamedTuple):
    """Tokens that may follow a node, best first.

    Attributes:
        token_ids: The tokens.
        logprobs: Logarithms of their probabilities after the node, at most 0.
    """

    token_ids: list[int]
    logprobs: list[float]


class DraftGrowth:
    """One draft while it grows.

    Args:
        max_nodes: Most nodes of the draft, at least 1.
        beam: Most nodes computed at each depth, at least 1.
        depth: Longest path, at least 1.

    Attributes:
        frontier: Nodes whose children come next; the root at first, none when grown.
        row_tokens: Tokens of the nodes that are or will be computed, in the order of their rows.
        row_parents: Their parents, as rows; ``ROOT`` for children of the root.
        max_rows: Most nodes that will be computed.
        num_levels: Depths that have been filled; the depth of the frontier.
    """

    def __init__(self, max_nodes: int, beam: int, depth: int) -> None:
        self.frontier: list[int] = [ROOT]
        self.row_tokens: list[int] = []
        self.row_parents: list[int] = []
        self.max_rows = (depth - 1) * min(beam, max_nodes - 1)
        self.num_levels = 0
        self._max_nodes = max_nodes
        self._beam = beam
        self._depth = depth
        self._rows = {ROOT: ROOT}
        self._token_ids: list[int] = []
        self._parents: list[int] = []
        self._values: list[float] = []

    def expand(self, found: Iterable[Candidates]) -> None:
        """Add children and choose the next frontier.

        Args:
            found: Of each node of the frontier.
        """
        first_new = len(self._token_ids)
        for node, candidates in zip(self.frontier, found, strict=True):
            value = self._values[node] if node != ROOT else 0.0
            self._token_ids.extend(candidates.token_ids)
            self._parents.extend([node] * len(candidates.token_ids))
            self._values.extend(value + logprob for logprob in candidates.logprobs)
        self.num_levels += 1
        self.frontier = []
        if self.num_levels < self._depth:
            leaders = self._best()[: self._max_nodes - 1]
            self.frontier = [node for node in leaders if node >= first_new][: self._beam]
        for node in self.frontier:
            self._rows[node] = len(self.row_tokens)
            self.row_tokens.append(self._token_ids[node])
            self.row_parents.append(self._rows[self._parents[node]])

    def draft(self) -> Draft:
        """Return the best nodes, best first.

        The score is the number of tokens that are expected to be accepted: an accepted path has a
        token for each of its nodes, so it is the sum of the nodes' values.
        """
        nodes = self._best()
        if not nodes:
            return EMPTY_DRAFT
        place = {ROOT: ROOT} | {node: index for index, node in enumerate(nodes)}
        return Draft(
            tuple(self._token_ids[node] for node in nodes),
            tuple(place[self._parents[node]] for node in nodes),
            sum(math.exp(self._values[node]) for node in nodes),
        )

    def _best(self) -> list[int]:
        """Return the nodes of highest value, of equals the older: parents before children."""
        nodes = sorted(range(len(self._values)), key=self._values.__getitem__, reverse=True)
        return nodes[: self._max_nodes]
