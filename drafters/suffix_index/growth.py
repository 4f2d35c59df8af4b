"""Grow drafts from occurrences of a suffix, most probable tokens first. Pure.

The probability of a token is the share of occurrences that go on with it among those that go on at
all, times the probability of the token before it (SuffixDecoding, arXiv 2411.04975, section on
greedy expansion). Of equally probable tokens the deeper comes first, then the one that occurred
more recently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from drafters.api import ROOT
from drafters.suffix_index.grams import Occurrence

Grow = Callable[[list[Occurrence], int, float], "Growth"]
"""Makes a draft of at most so many tokens, none of which is less probable than that."""


@dataclass(slots=True)
class Growth:
    """A draft as it grows: its nodes and the probability that each is reached and right."""

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def score(self) -> float:
        """Tokens that are expected to be accepted."""
        return sum(self.probabilities)

    def append(self, token_ids: list[int], parent: int, probability: float) -> int:
        """Append tokens one below the other, the first below ``parent``; return the last node."""
        if not token_ids:
            return parent
        first = len(self.token_ids)
        self.token_ids += token_ids
        self.parents.append(parent)
        self.parents += range(first, first + len(token_ids) - 1)
        self.probabilities += [probability] * len(token_ids)
        return len(self.token_ids) - 1


def grow_chain(occurrences: list[Occurrence], most: int, min_probability: float) -> Growth:
    """Return the chain of the most probable token at each depth.

    Args:
        occurrences: Where to copy from, the most recent first.
        most: Most tokens.
        min_probability: The chain ends before the first token that is less probable, 0 to 1.
    """
    chain = Growth()
    node, probability, group = ROOT, 1.0, occurrences
    while len(chain) < most:
        agreed = _agreed(group, len(chain), most - len(chain))
        if agreed is not None:
            chain.append(agreed, node, probability)
            break
        followers, total = _followers(group, len(chain))
        token_id, group = max(followers.items(), key=_num_occurrences)
        probability *= len(group) / total
        if probability < min_probability:
            break
        node = chain.append([token_id], node, probability)
    return chain


def grow_tree(occurrences: list[Occurrence], most: int, min_probability: float) -> Growth:
    """Return the tree of the most probable nodes, listed most probable first.

    Args:
        occurrences: Where to copy from, the most recent first.
        most: Most nodes.
        min_probability: Less probable nodes are left out, 0 to 1.
    """
    tree = Growth()
    frontier: list[tuple[float, int, int, int, int, list[Occurrence]]] = []
    node, depth, probability, group = ROOT, 0, 1.0, occurrences
    while True:
        agreed = _agreed(group, depth, most - len(tree))
        if agreed is not None:
            tree.append(agreed, node, probability)  # nothing in the frontier comes before these
        else:
            followers, total = _followers(group, depth)
            for token_id, going_on in followers.items():
                below = probability * (len(going_on) / total)
                if below >= min_probability:
                    entry = (-below, -depth - 1, going_on[0][0], token_id, node, going_on)
                    heappush(frontier, entry)
        if not frontier or len(tree) >= most:
            return tree
        minus_probability, minus_depth, _, token_id, parent, group = heappop(frontier)
        probability, depth = -minus_probability, -minus_depth
        node = tree.append([token_id], parent, probability)


class BestGrowth:
    """Keeps the draft with the highest score over match lengths.

    A match of ``p`` tokens gives a draft of at most ``max_spec_factor * p``. Of drafts with equal
    scores the one offered first is kept.

    Args:
        grow: Makes a draft from occurrences.
        most: Most tokens in any draft.
        max_spec_factor: Tokens drafted for each token matched.
        min_probability: Least probability of a token.

    Attributes:
        growth: The best draft so far; empty if there is none.
        score: Its score.
    """

    def __init__(
        self, grow: Grow, most: int, max_spec_factor: float, min_probability: float
    ) -> None:
        self._grow = grow
        self._most = most
        self._max_spec_factor = max_spec_factor
        self._min_probability = min_probability
        self.growth = Growth()
        self.score = 0.0

    def is_worth(self, length: int) -> bool:
        """Return whether matches of at most ``length`` tokens may give a better draft.

        No token counts more than 1, so one of at most as many tokens as the best score cannot.
        """
        return self._size(length) > self.score

    def offer(self, length: int, occurrences: list[Occurrence]) -> None:
        """Take what grows from the occurrences of the last ``length`` tokens, if it is better."""
        growth = self._grow(occurrences, self._size(length), self._min_probability)
        score = growth.score
        if score > self.score:
            self.growth, self.score = growth, score

    def _size(self, length: int) -> int:
        return min(self._most, max_spec_tokens(length, self._max_spec_factor))


def max_spec_tokens(match_length: int, max_spec_factor: float) -> int:
    """Return how many tokens a match is good for, rounded down.

    >>> max_spec_tokens(10, 0.7)
    7
    """
    return int(match_length * max_spec_factor + 1e-6)


def _agreed(group: list[Occurrence], depth: int, most: int) -> list[int] | None:
    """Return the next tokens if all occurrences that go on agree in them, else None.

    Args:
        group: Occurrences that agree in the ``depth`` tokens after them.
        depth: Where to look.
        most: How many tokens to look at.
    """
    longest: list[int] = []
    for _, token_ids, start in group:
        tokens = token_ids[start + depth : start + depth + most]
        if len(tokens) > len(longest):
            tokens, longest = longest, tokens
        if longest[: len(tokens)] != tokens:
            return None
    return longest


def _followers(group: list[Occurrence], depth: int) -> tuple[dict[int, list[Occurrence]], int]:
    """Return the occurrences that go on, by next token, the most recent first; and their number."""
    followers: dict[int, list[Occurrence]] = {}
    total = 0
    for one in group:
        _, token_ids, start = one
        if start + depth < len(token_ids):
            total += 1
            token_id = token_ids[start + depth]
            if token_id in followers:
                followers[token_id].append(one)
            else:
                followers[token_id] = [one]
    return followers, total


def _num_occurrences(follower: tuple[int, list[Occurrence]]) -> int:
    return len(follower[1])
