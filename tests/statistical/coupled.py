"""The product's rule over a Markov language: its noise, its walk, its loop of rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from drafters.api import EMPTY_DRAFT, ROOT, Draft, chain
from models.noise import gumbel_noise, key_array, noise_key
from replicas.engine.verification import verify_draft
from tests.statistical.markov import FIRST, LENGTH, Table, log_row
from tests.statistical.rejection import draw

PROMPT_LENGTH = 5
"""Position of the first token."""

NUM_POSITIONS = 2 * LENGTH
"""Positions that noise is computed for: a draft may reach past the last token that is looked at."""

Drafting = Callable[[int, Sequence[int]], Draft]
"""Makes a draft for the text of a seed, from what there is of it."""


def no_draft(seed: int, text: Sequence[int]) -> Draft:
    """Draft nothing."""
    return EMPTY_DRAFT


def sampled_chain(table: Table, gamma: int, rng: random.Random) -> Drafting:
    """Return what drafts by drawing each token from a table."""

    def drafting(seed: int, text: Sequence[int]) -> Draft:
        tokens = [last_of(text)]
        for _ in range(gamma):
            tokens.append(draw(table[tokens[-1]], rng.random()))
        return chain(tokens[1:])

    return drafting


def coupled_chain(tokens: NDArray[np.int64], gamma: int) -> Drafting:
    """Return what drafts by drawing from the drafter's table with the target's noise."""
    of_seeds: list[list[list[int]]] = tokens.tolist()

    def drafting(seed: int, text: Sequence[int]) -> Draft:
        drawn = [last_of(text)]
        for index in range(len(text), len(text) + gamma):
            drawn.append(of_seeds[seed][index][drawn[-1]])
        return chain(drawn[1:])

    return drafting


def sampled_tree(table: Table, rng: random.Random) -> Drafting:
    """Return what drafts the two likeliest tokens, and below them drawn ones.

    Siblings may be equal, and the tree is uneven, as trees are.
    """

    def drafting(seed: int, text: Sequence[int]) -> Draft:
        row = table[last_of(text)]
        tokens = sorted(range(len(row)), key=lambda token: -row[token])[:2]
        parents = [ROOT, ROOT]
        for parent in (0, 0, 1, 2, 2, 4):
            tokens.append(draw(table[tokens[parent]], rng.random()))
            parents.append(parent)
        return Draft(tuple(tokens), tuple(parents))

    return drafting


def last_of(text: Sequence[int]) -> int:
    """Return the last token of a text or of the prompt before it."""
    return text[-1] if text else FIRST


def token_tables(table: Table, num_seeds: int, choice_index: int = 0) -> NDArray[np.int64]:
    """Return the target's token by seed, position and last token, with the product's noise.

    ``Sampler.token`` gives the same (there is a test of it), one at a time.
    """
    keys = [
        noise_key(seed, choice_index, PROMPT_LENGTH + index)
        for seed in range(num_seeds)
        for index in range(NUM_POSITIONS)
    ]
    noise = gumbel_noise(key_array(keys)[:, None], np.arange(len(table)))
    logits = np.array([log_row(row) for row in table])
    tokens: NDArray[np.int64] = (noise[:, None, :] + logits).argmax(2)
    return tokens.reshape(num_seeds, NUM_POSITIONS, len(table))


class CoupledLoop:
    """Generates one text after the other; whatever a bug could get wrong is a method of its own.

    Args:
        table: The target's table.
        tokens: Of ``token_tables``.
        drafting: Makes the drafts.

    Attributes:
        rng: For bugs that draw.
        num_accepted: Draft tokens accepted so far.
    """

    def __init__(self, table: Table, tokens: NDArray[np.int64], drafting: Drafting) -> None:
        self.table = table
        self.tokens: list[list[list[int]]] = tokens.tolist()
        self.drafting = drafting
        self.rng = random.Random(5)
        self.num_accepted = 0

    def generate(self, seed: int) -> tuple[int, ...]:
        """Return the first tokens of the text with this seed."""
        text: list[int] = []
        while len(text) < LENGTH:
            text += self.round(seed, text)
        return tuple(text[:LENGTH])

    def generate_all(self) -> list[tuple[int, ...]]:
        """Return the texts of all seeds."""
        return [self.generate(seed) for seed in range(len(self.tokens))]

    def round(self, seed: int, text: Sequence[int]) -> tuple[int, ...]:
        """Draft, verify, and return what is emitted."""
        draft = self.drafting(seed, text)

        def target_token(node: int) -> int:
            return self.target_token(seed, text, draft, node)

        verdict = verify_draft(draft, target_token, lambda _: False)
        self.num_accepted += len(verdict.accepted_nodes)
        return verdict.token_ids

    def target_token(self, seed: int, text: Sequence[int], draft: Draft, node: int) -> int:
        """Return the target's token after a node of a draft."""
        index = self.noise_index(len(text), depth(draft, node))
        return self.tokens[seed][index][self.last_token(text, draft, node)]

    def noise_index(self, num_emitted: int, num_accepted: int) -> int:
        """Return which position's noise draws the token after so many."""
        return num_emitted + num_accepted

    def last_token(self, text: Sequence[int], draft: Draft, node: int) -> int:
        """Return the token whose row is looked at after a node."""
        return draft.token_ids[node] if node != ROOT else last_of(text)


def depth(draft: Draft, node: int) -> int:
    """Return how many nodes lie from the root down to a node, itself included."""
    return 0 if node == ROOT else depth(draft, draft.parents[node]) + 1


def is_leaf(draft: Draft, node: int) -> bool:
    """Return whether no node follows: after it the bonus token comes."""
    return node not in draft.parents
