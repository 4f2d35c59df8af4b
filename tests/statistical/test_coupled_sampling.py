"""The product's rule with its real noise: the joint law of four tokens, and planted bugs.

A bug in the rows or in the noise may leave every single token's law right and only the joint law
wrong; so what is tested is the joint law, over a target whose rows differ by the last token.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from drafters.api import ROOT, Draft
from replicas.api import SamplingParams
from replicas.engine.sampler import Sampler
from replicas.engine.verification import verify_draft
from tests.statistical.chi_square import SIGNIFICANT, p_value
from tests.statistical.coupled import (
    PROMPT_LENGTH,
    CoupledLoop,
    Drafting,
    coupled_chain,
    is_leaf,
    last_of,
    no_draft,
    sampled_chain,
    sampled_tree,
    token_tables,
)
from tests.statistical.markov import (
    DRAFTER,
    FIRST,
    LENGTH,
    TARGET,
    Table,
    controlled,
    joint_law,
    log_row,
)
from tests.statistical.rejection import acceptance_rate, draw

NUM_GENERATIONS = 4000
NUM_WITH_DRAFTS = 1500
NUM_WITH_BUG = 2000
VOCAB = torch.arange(len(TARGET))
LAW = joint_law(TARGET, LENGTH, 1.0)

CONTROLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cold": {"temperature": 0.6},
    "hot": {"temperature": 1.7},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.28},
    "all": {"temperature": 1.3, "top_p": 0.9, "min_p": 0.2},
}


def draftings(table: Table, num_seeds: int) -> dict[str, Drafting]:
    """Return ways to draft: mostly wrong, mostly right, branching."""
    rng = random.Random(3)
    return {
        "chain": sampled_chain(DRAFTER, 3, rng),
        "short": sampled_chain(table, 1, rng),
        "coupled": coupled_chain(token_tables(DRAFTER, num_seeds), 3),
        "tree": sampled_tree(DRAFTER, rng),
    }


def target_table(**changes: float) -> Table:
    return controlled(TARGET, **{"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, **changes})


@pytest.mark.parametrize("controls", CONTROLS)
def test_the_joint_law_of_four_tokens(controls: str) -> None:
    table = target_table(**CONTROLS[controls])
    tokens = token_tables(table, NUM_GENERATIONS)
    texts = CoupledLoop(table, tokens, no_draft).generate_all()
    assert p_value(texts, joint_law(table, LENGTH, 1.0)) > SIGNIFICANT
    for drafting in draftings(table, NUM_WITH_DRAFTS).values():
        loop = CoupledLoop(table, tokens[:NUM_WITH_DRAFTS], drafting)
        assert loop.generate_all() == texts[:NUM_WITH_DRAFTS]
        assert loop.num_accepted > NUM_WITH_DRAFTS / 4


def test_a_drafter_with_the_targets_noise_is_right_as_often_as_promised() -> None:
    # One token: at least (1 - TV) / (1 + TV) of the time (Daliri et al. 2024, arXiv:2408.07978),
    # which beats what independent draws agree on.
    table, drafter = (token_tables(each, 4000)[:, 0, FIRST] for each in (TARGET, DRAFTER))
    agreed = float((table == drafter).mean())
    distance = 1 - acceptance_rate(TARGET[FIRST], DRAFTER[FIRST])
    least = (1 - distance) / (1 + distance)
    assert agreed > least - 4 * math.sqrt(least * (1 - least) / 4000)


@pytest.mark.parametrize("controls", CONTROLS)
def test_the_sampler_gives_the_tokens_of_the_loop(controls: str) -> None:
    tokens = token_tables(target_table(**CONTROLS[controls]), 15)
    params = SamplingParams(LENGTH, **{"temperature": 1.0, **CONTROLS[controls]})
    logits = [torch.tensor(log_row(row)) for row in TARGET]
    for seed, of_seed in enumerate(tokens.tolist()):
        sampler = Sampler(params, seed, 0, [FIRST], [], VOCAB)
        for index, expected in enumerate(of_seed):
            drawn = [sampler.token(row, PROMPT_LENGTH + index) for row in logits]
            assert drawn == expected


def test_replies_with_a_sampler_each_are_those_of_the_loop() -> None:
    tokens = token_tables(TARGET, 200, choice_index=1)
    texts = CoupledLoop(TARGET, tokens, no_draft).generate_all()
    drafting = sampled_tree(DRAFTER, random.Random(4))
    logits = [torch.tensor(log_row(row)) for row in TARGET]
    assert [reply(seed, logits, drafting) for seed in range(200)] == texts


def reply(seed: int, logits: Sequence[torch.Tensor], drafting: Drafting) -> tuple[int, ...]:
    sampler = Sampler(SamplingParams(LENGTH), seed, 1, [FIRST], [], VOCAB)
    text: list[int] = []

    def target_token(_: int) -> int:
        # What was emitted last is the token of the node that is asked about.
        return sampler.token(logits[last_of(text)], PROMPT_LENGTH + len(text))

    def emit(token: int) -> bool:
        text.append(token)
        sampler.emit(token)
        return len(text) == LENGTH

    while len(text) < LENGTH:
        verify_draft(drafting(seed, text), target_token, emit)
    return tuple(text)


class RowOffByOne(CoupledLoop):
    """The row before the node's own."""

    def last_token(self, text: Sequence[int], draft: Draft, node: int) -> int:
        return super().last_token(text, draft, draft.parents[node] if node != ROOT else ROOT)


class BonusFromWrongRow(CoupledLoop):
    """The same, only for the token after all that was drafted."""

    def last_token(self, text: Sequence[int], draft: Draft, node: int) -> int:
        if node != ROOT and is_leaf(draft, node):
            node = draft.parents[node]
        return super().last_token(text, draft, node)


class PrefixNotSeen(CoupledLoop):
    """Every row as if nothing of the draft had been accepted."""

    def last_token(self, text: Sequence[int], draft: Draft, node: int) -> int:
        return super().last_token(text, draft, ROOT)


class RowOfASibling(CoupledLoop):
    """The row of the first sibling, whichever was accepted."""

    def last_token(self, text: Sequence[int], draft: Draft, node: int) -> int:
        if node != ROOT:
            node = draft.parents.index(draft.parents[node])
        return super().last_token(text, draft, node)


class NoiseOfTwoPositions(CoupledLoop):
    """Two positions share their noise."""

    def noise_index(self, num_emitted: int, num_accepted: int) -> int:
        return (num_emitted + num_accepted) // 2


class NoiseByIndexInDraft(CoupledLoop):
    """Noise keyed by the index within a round, so used again in the next one."""

    def noise_index(self, num_emitted: int, num_accepted: int) -> int:
        return num_accepted


class BonusNoiseUsedAgain(CoupledLoop):
    """The token after a round is drawn with the noise of the round's last one."""

    def noise_index(self, num_emitted: int, num_accepted: int) -> int:
        return max(0, num_emitted - 1) if num_accepted == 0 else num_emitted + num_accepted


class BonusFromDrafter(CoupledLoop):
    """The token after all that was drafted comes from the drafter."""

    def target_token(self, seed: int, text: Sequence[int], draft: Draft, node: int) -> int:
        if node != ROOT and is_leaf(draft, node):
            return draw(DRAFTER[draft.token_ids[node]], self.rng.random())
        return super().target_token(seed, text, draft, node)


class RecoveredAnew(CoupledLoop):
    """Where the target disagrees with the draft it draws again, so the draft gets two chances."""

    def target_token(self, seed: int, text: Sequence[int], draft: Draft, node: int) -> int:
        token = super().target_token(seed, text, draft, node)
        children = [draft.token_ids[i] for i, parent in enumerate(draft.parents) if parent == node]
        if not children or token in children:
            return token
        return draw(self.table[self.last_token(text, draft, node)], self.rng.random())


class NoiseOfEachSibling(CoupledLoop):
    """Each sibling is compared with a draw of its own."""

    def target_token(self, seed: int, text: Sequence[int], draft: Draft, node: int) -> int:
        row = self.table[self.last_token(text, draft, node)]
        for child, parent in enumerate(draft.parents):
            if parent == node and draw(row, self.rng.random()) == draft.token_ids[child]:
                return draft.token_ids[child]
        return draw(row, self.rng.random())


class ArgmaxAccept(CoupledLoop):
    """A draft token is accepted where it is the target's likeliest."""

    def target_token(self, seed: int, text: Sequence[int], draft: Draft, node: int) -> int:
        row = self.table[self.last_token(text, draft, node)]
        for child, parent in enumerate(draft.parents):
            if parent == node and row[draft.token_ids[child]] == max(row):
                return draft.token_ids[child]
        return super().target_token(seed, text, draft, node)


# Beside each: the p-value found. Bugs of the bonus token need drafts that are often accepted.
BUGS: list[tuple[type[CoupledLoop], str]] = [
    (RowOffByOne, "chain"),  # 2e-38
    (BonusFromWrongRow, "short"),  # 1e-66
    (BonusFromWrongRow, "coupled"),  # 3e-21
    (PrefixNotSeen, "chain"),  # 5e-36
    (RowOfASibling, "tree"),  # 1e-232
    (NoiseOfTwoPositions, "chain"),  # < 1e-300
    (NoiseByIndexInDraft, "chain"),  # < 1e-300
    (BonusNoiseUsedAgain, "chain"),  # 3e-261
    (BonusFromDrafter, "short"),  # 2e-16
    (BonusFromDrafter, "coupled"),  # 2e-11
    (RecoveredAnew, "chain"),  # 2e-17
    (NoiseOfEachSibling, "tree"),  # 2e-83
    (ArgmaxAccept, "chain"),  # 5e-225
]


@pytest.mark.parametrize(("bug", "drafting"), BUGS)
def test_a_planted_bug_is_found(bug: type[CoupledLoop], drafting: str) -> None:
    tokens = token_tables(TARGET, NUM_WITH_BUG)
    loop = bug(TARGET, tokens, draftings(TARGET, NUM_WITH_BUG)[drafting])
    assert p_value(loop.generate_all(), LAW) < SIGNIFICANT
