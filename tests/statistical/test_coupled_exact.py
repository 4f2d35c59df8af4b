"""Coupled sampling summed up exactly, in fractions: every noise, every draft, no sampling.

A position's noise decides the target's token for every row at that position at once (siblings of a
tree share it). Any noise that draws each row by its law will do; this one is a point of [0, 1) and
the rows' inverse distribution functions, of which finitely many cells differ.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.api import EMPTY_DRAFT, ROOT, Draft, chain
from replicas.engine.verification import verify_draft
from tests.statistical.coupled import depth
from tests.statistical.markov import FIRST, joint_law
from tests.statistical.rejection import acceptance_rate

Text = tuple[int, ...]
Rows = Sequence[Sequence[Fraction]]
Drafting = Callable[[Text], Draft]

VOCAB = 3
LENGTH = 3


def rows(*weights: Sequence[int]) -> Rows:
    return [[Fraction(weight, sum(row)) for weight in row] for row in weights]


TARGET = rows((1, 2, 3), (4, 1, 1), (0, 3, 2))


class Cell(NamedTuple):
    """Noise that gives the same token after each last token."""

    mass: Fraction
    tokens: tuple[int, ...]


def cells(table: Rows) -> list[Cell]:
    """Return the noises of a position that differ."""
    ends = sorted({sum(row[: i + 1], Fraction(0)) for row in table for i in range(len(row))})
    starts = [Fraction(0), *ends[:-1]]
    return [
        Cell(end - start, tuple(token_at(row, start) for row in table))
        for start, end in zip(starts, ends, strict=True)
        if end > start
    ]


def token_at(row: Sequence[Fraction], point: Fraction) -> int:
    passed = list(itertools.accumulate(row))
    return next(token for token, end in enumerate(passed) if point < end)


def emitted_law(table: Rows, drafting: Drafting) -> Mapping[Text, Fraction]:
    """Return the law of the first tokens that rounds of drafts and verification emit."""
    law: dict[Text, Fraction] = defaultdict(Fraction)
    for noise in itertools.product(cells(table), repeat=LENGTH):
        mass = Fraction(1)
        for cell in noise:
            mass *= cell.mass
        law[generate(noise, drafting)] += mass
    return law


def generate(noise: Sequence[Cell], drafting: Drafting) -> Text:
    text: Text = ()
    while len(text) < LENGTH:
        text += one_round(noise, text, drafting(text))
    return text


def one_round(noise: Sequence[Cell], text: Text, draft: Draft) -> Text:
    emitted = len(text)

    def target_token(node: int) -> int:
        last = draft.token_ids[node] if node != ROOT else text[-1] if text else FIRST
        return noise[len(text) + depth(draft, node)].tokens[last]

    def ends_reply(_: int) -> bool:
        nonlocal emitted
        emitted += 1
        return emitted == LENGTH

    return verify_draft(draft, target_token, ends_reply).token_ids


def possible(law: Mapping[Text, Fraction]) -> dict[Text, Fraction]:
    return {text: mass for text, mass in law.items() if mass}


CHAIN_LAW = possible(joint_law(TARGET, LENGTH, Fraction(1)))
TREE = Draft((1, 2, 0, 1, 2, 0, 1), (ROOT, ROOT, 0, 0, 1, 2, 2))

DRAFTINGS: dict[str, Drafting] = {
    "none": lambda text: EMPTY_DRAFT,
    "chain": lambda text: chain([2, 1, 1]),
    "longer than the reply": lambda text: chain([2, 2, 1, 0, 1]),
    "tree": lambda text: TREE,
    "equal siblings": lambda text: Draft((2, 2, 1, 2), (ROOT, ROOT, 0, 1)),
    "every token": lambda text: Draft((0, 1, 2, 0, 1, 2), (ROOT, ROOT, ROOT, 1, 1, 1)),
    "by what came": lambda text: chain([(sum(text) + len(text)) % VOCAB] * 2),
}


@pytest.mark.parametrize("name", DRAFTINGS)
def test_the_law_of_what_is_emitted_is_the_targets(name: str) -> None:
    assert possible(emitted_law(TARGET, DRAFTINGS[name])) == CHAIN_LAW


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    size = draw(st.integers(0, 6))
    parents = tuple(draw(st.integers(ROOT, node - 1)) for node in range(size))
    return Draft(tuple(draw(st.integers(0, VOCAB - 1)) for _ in parents), parents)


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    row = st.lists(st.integers(0, 4), min_size=VOCAB, max_size=VOCAB).filter(any)
    return rows(*(draw(row) for _ in range(VOCAB)))


@settings(max_examples=15)
@given(tables(), st.lists(drafts(), min_size=4, max_size=4))
def test_the_law_is_the_targets_for_any_table_and_drafts(table: Rows, some: list[Draft]) -> None:
    law = emitted_law(table, lambda text: some[(len(text) + sum(text)) % len(some)])
    assert possible(law) == possible(joint_law(table, LENGTH, Fraction(1)))


@settings(max_examples=15)
@given(drafts(), drafts())
def test_no_noise_gives_another_text_for_another_draft(one: Draft, other: Draft) -> None:
    for noise in itertools.product(cells(TARGET), repeat=LENGTH):
        expected = generate(noise, lambda _: EMPTY_DRAFT)
        assert generate(noise, lambda _: one) == generate(noise, lambda _: other) == expected


def mass_of_acceptance(draft: Draft) -> Fraction:
    """Return the probability that a first node of a draft is accepted."""
    mass = Fraction(0)
    for cell in cells(TARGET):
        token = cell.tokens[FIRST]
        if verify_draft(draft, {ROOT: token}.__getitem__, lambda _: True).accepted_nodes:
            mass += cell.mass
    return mass


@pytest.mark.parametrize("token", range(VOCAB))
def test_a_token_is_accepted_with_the_targets_probability(token: int) -> None:
    accepted = mass_of_acceptance(chain([token]))
    assert accepted == TARGET[FIRST][token]
    one_hot = [float(other == token) for other in range(VOCAB)]
    reference = acceptance_rate([float(part) for part in TARGET[FIRST]], one_hot)
    assert float(accepted) == pytest.approx(reference, abs=1e-15)


def test_siblings_are_accepted_with_the_sum_of_theirs() -> None:
    siblings = Draft((2, 0), (ROOT, ROOT))
    assert mass_of_acceptance(siblings) == TARGET[FIRST][2] + TARGET[FIRST][0]


def test_a_chain_is_accepted_with_the_product_of_its_tokens() -> None:
    draft = chain([2, 1, 1])
    law: dict[int, Fraction] = defaultdict(Fraction)
    for noise in itertools.product(cells(TARGET), repeat=LENGTH + 1):
        mass = Fraction(1)
        for cell in noise:
            mass *= cell.mass

        def target_token(node: int, noise: Sequence[Cell] = noise) -> int:
            last = draft.token_ids[node] if node != ROOT else FIRST
            return noise[node + 1].tokens[last]

        verdict = verify_draft(draft, target_token, lambda _: False)
        law[len(verdict.accepted_nodes)] += mass
    reach = [sum(law[n] for n in range(least, 4)) for least in range(1, 4)]
    first, second, third = TARGET[FIRST][2], TARGET[2][1], TARGET[1][1]
    assert reach == [first, first * second, first * second * third]
