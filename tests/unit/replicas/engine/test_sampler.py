from __future__ import annotations

from typing import Any

import pytest
import torch

from models.drawing import draw_tokens
from models.noise import noise_key
from replicas.api import SamplingParams
from replicas.engine.sampler import Sampler

EOS = 2


def sampler(seed: int = 1, **changes: Any) -> Sampler:
    given = SamplingParams(max_tokens=10, **changes)
    return Sampler(given, seed, 0, [0, 1], [EOS], torch.arange(4))


def draws(count: int, logits: torch.Tensor, **changes: Any) -> list[int]:
    one = sampler(**changes)
    return [one.token(logits, position) for position in range(count)]


def test_greedy_is_the_largest_logit_and_the_lowest_id_among_equals() -> None:
    logits = torch.tensor([0.0, 5.0, 5.0, 1.0])
    assert draws(1, logits, temperature=0.0) == [1]
    assert draws(1, logits, temperature=0.0, top_p=0.1, top_k=1) == [1]
    assert draws(1, logits, temperature=1e-9) == [1]


def test_a_reply_may_not_end_before_min_tokens() -> None:
    one = sampler(temperature=0.0, min_tokens=1)
    logits = torch.tensor([0.0, 1.0, 5.0, 2.0])
    assert not one.is_plain
    assert one.token(logits, 2) == 3
    one.emit(3)
    assert one.is_plain
    assert one.temperature == 0
    assert one.token(logits, 3) == EOS


def test_penalties_see_the_tokens_emitted_so_far() -> None:
    one = sampler(temperature=0.0, frequency_penalty=2.0)
    logits = torch.tensor([1.0, 1.5, 0.0, 1.2])
    tokens = []
    for position in range(4):
        tokens.append(one.token(logits, position))
        one.emit(tokens[-1])
    assert tokens == [1, 3, 0, 2]
    assert logits.tolist() == pytest.approx([1.0, 1.5, 0.0, 1.2])


def test_only_allowed_tokens_are_drawn_and_never_banned_ones() -> None:
    logits = torch.tensor([9.0, 0.0, 8.0, 0.5])
    assert set(draws(60, logits, allowed_token_ids=(1, 3))) == {1, 3}
    assert set(draws(60, logits, allowed_token_ids=(1, 3), banned_token_ids=(3,))) == {1}
    assert set(draws(60, logits, banned_token_ids=(0, 2), top_p=0.999)) == {1, 3}
    assert draws(1, logits, banned_token_ids=(0,), temperature=0.0) == [2]


def test_all_controls_of_a_row_work_together() -> None:
    one = sampler(
        temperature=0.0, presence_penalty=2.0, logit_bias={3: 1.5}, banned_sequences=((1, 3),)
    )
    logits = torch.tensor([0.0, 3.0, 0.5, 1.0])
    tokens = []
    for position in range(4):
        tokens.append(one.token(logits, position))
        one.emit(tokens[-1])
    # After the first 1 the penalty leaves it 1.0; 3, with its bias, has 2.5 but may not follow it.
    assert tokens == [1, 1, 1, 1]
    unbanned = sampler(temperature=0.0, presence_penalty=2.0, logit_bias={3: 1.5})
    unbanned.emit(1)
    assert unbanned.token(logits, 1) == 3
    unbanned.emit(3)
    assert unbanned.token(logits, 2) == 1


def test_min_tokens_comes_on_top_of_what_is_allowed() -> None:
    one = sampler(temperature=0.0, min_tokens=1, allowed_token_ids=(1, EOS))
    logits = torch.tensor([9.0, 0.0, 8.0, 5.0])
    assert one.token(logits, 2) == 1
    one.emit(1)
    assert one.token(logits, 3) == EOS


def test_a_banned_sequence_is_not_completed() -> None:
    one = sampler(temperature=0.0, banned_sequences=((3, 3), (1, 3, 0)))
    logits = torch.tensor([2.0, 1.0, 0.0, 3.0])
    tokens = []
    for position in range(5):
        tokens.append(one.token(logits, position))
        one.emit(tokens[-1])
    assert tokens == [3, 0, 3, 0, 3]
    assert not one.is_plain


def test_bans_are_in_the_logprobs() -> None:
    one = sampler(allowed_token_ids=(1, 3), logprobs=4)
    report = one.logprobs(torch.zeros(4), 1)
    assert report.logprob == pytest.approx(-0.6931472)
    assert {token for token, value in report.top if value > float("-inf")} == {1, 3}


def test_more_alternatives_than_tokens_are_all_tokens() -> None:
    assert len(sampler(logprobs=20).logprobs(torch.zeros(4), 1).top) == 4


def test_a_draw_depends_on_seed_and_position_only() -> None:
    logits = torch.zeros(4)
    assert draws(50, logits, seed=5) == draws(50, logits, seed=5)
    assert draws(50, logits, seed=5) != draws(50, logits, seed=6)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_plain_rows_can_be_drawn_together(temperature: float) -> None:
    rows = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    one = sampler(temperature=temperature)
    assert one.is_plain
    keys, temperatures = zip(*(one.plain_draw(i) for i in range(20)), strict=True)
    assert set(temperatures) == {temperature}
    assert keys[3] == (noise_key(1, 0, 3) if temperature else 0)
    together = draw_tokens(rows, keys, temperatures)
    assert together == [one.token(row, position) for position, row in enumerate(rows)]


@pytest.mark.parametrize(
    "changes",
    [
        {"top_p": 0.9},
        {"top_k": 3},
        {"min_p": 0.1},
        {"presence_penalty": 1.0},
        {"frequency_penalty": 1.0},
        {"repetition_penalty": 1.1},
        {"logit_bias": {1: 1.0}},
        {"allowed_token_ids": (1,)},
        {"banned_token_ids": (1,)},
        {"banned_sequences": ((1,),)},
        {"banned_sequences": ((1, 2),)},
        {"min_tokens": 1},
    ],
    ids=str,
)
def test_rows_with_a_control_are_not_plain(changes: dict[str, Any]) -> None:
    one = sampler(**changes)
    assert not one.is_plain
    assert one.plain_draw(5) == (0, 0.0)
    truncates = bool(changes.keys() & {"top_p", "top_k", "min_p"})
    greedy = sampler(temperature=0.0, **changes)
    assert (greedy.is_plain and greedy.temperature == 0) == truncates


def test_logprobs_are_the_targets() -> None:
    one = sampler(temperature=0.5, logprobs=2)
    logits = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    report = one.logprobs(logits, 1)
    assert report.logprob == pytest.approx(-1.6094379, rel=1e-5)
    assert [token for token, _ in report.top] == [3, 2]
