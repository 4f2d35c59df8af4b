"""What may follow at a row, against sums over the whole vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from drafters.api import NoiseKey
from drafters.model_drafting.candidates import DraftedRow, find_candidates
from models.noise import gumbel_noise, key_array, noise_key

VOCAB_SIZE = 1000


def sums(logits: torch.Tensor, row: DraftedRow) -> torch.Tensor:
    noise = row.noise
    key = noise_key(noise.seed, noise.choice_index, row.position)
    gumbel = gumbel_noise(key_array([key]), np.arange(len(logits)))
    return logits + noise.temperature * torch.from_numpy(gumbel)


def test_the_first_candidate_is_the_models_own_sample_however_unlikely() -> None:
    logits = torch.randn(40, VOCAB_SIZE, generator=torch.Generator().manual_seed(0))
    rows = [DraftedRow(NoiseKey(3, 1, [0.0, 0.5, 2.0][i % 3]), i) for i in range(40)]
    found = find_candidates(logits, rows, 3)
    num_unlikely = 0
    for index, (row, candidates) in enumerate(zip(rows, found, strict=True)):
        drawn = int(sums(logits[index], row).argmax())
        assert candidates.token_ids[0] == drawn
        assert len(set(candidates.token_ids)) == 3
        assert candidates.logprobs == sorted(candidates.logprobs, reverse=True)
        num_unlikely += drawn not in logits[index].topk(128).indices.tolist()
    assert num_unlikely > 5


def test_the_noise_is_that_of_the_request() -> None:
    logits = torch.zeros(1, VOCAB_SIZE)
    rows = [
        DraftedRow(NoiseKey(1, 0, 1.0), 5),
        DraftedRow(NoiseKey(2, 0, 1.0), 5),
        DraftedRow(NoiseKey(1, 1, 1.0), 5),
        DraftedRow(NoiseKey(1, 0, 1.0), 6),
    ]
    assert len({find_candidates(logits, [row], 1)[0].token_ids[0] for row in rows}) == 4
    together = find_candidates(logits.expand(4, -1), rows, 2)
    assert together == [find_candidates(logits, [row], 2)[0] for row in rows]


def test_a_temperature_next_to_nothing_is_greedy() -> None:
    logits = torch.randn(1, VOCAB_SIZE, generator=torch.Generator().manual_seed(0))
    greedy, nearly = (
        find_candidates(logits, [DraftedRow(NoiseKey(1, 0, temperature), 0)], 5)
        for temperature in (0.0, 1e-30)
    )
    assert greedy == nearly


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_more_candidates_than_tokens_are_all_of_them(temperature: float) -> None:
    rows = [DraftedRow(NoiseKey(1, 0, temperature), 0)]
    (found,) = find_candidates(torch.tensor([[1.0, 3.0, 2.0]]), rows, 10)
    assert sorted(found.token_ids) == [0, 1, 2]
    assert sum(map(np.exp, found.logprobs)) == pytest.approx(1)
