from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from replicas.engine.noise import gumbel_noise, noise_key, uniform_noise

KEYS = st.integers(0, 2**64 - 1)


@given(KEYS, st.integers(0, 10**6))
def test_a_token_has_the_same_noise_in_every_company(key: int, token: int) -> None:
    alone = gumbel_noise(key, torch.tensor([token]))
    among = gumbel_noise(key, torch.tensor([5, token, token + 1]))
    assert alone[0] == among[1]
    assert torch.isfinite(among).all()


def test_every_part_of_the_key_matters() -> None:
    keys = {
        noise_key(seed, choice, position)
        for seed in range(8)
        for choice in range(8)
        for position in range(64)
    }
    assert len(keys) == 8 * 8 * 64


def test_the_hash_is_the_one_that_other_replicas_use() -> None:
    # A change of the hash changes every sampled reply: never by accident.
    key = noise_key(1, 2, 3)
    assert key == 0x6AE515C1C0AC7E37
    expected = [0.13008570671081543, 0.43731844425201416, 0.954925537109375]
    assert uniform_noise(key, torch.arange(3)).tolist() == expected


def test_uniform_noise_is_uniform() -> None:
    sample = torch.cat(
        [uniform_noise(noise_key(7, 0, position), torch.arange(5000)) for position in range(20)]
    )
    counts = torch.histc(sample, bins=100, min=0, max=1)
    expected = sample.numel() / 100
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # 99 degrees of freedom: mean 99, standard deviation 14; five of those away is 1e-5.
    assert chi_square < 99 + 5 * math.sqrt(2 * 99)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_gumbel_max_draws_from_the_softmax(temperature: float) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.5, 0.3, -4.0])
    ids = torch.arange(len(logits))
    num_draws = 20_000
    counts = torch.zeros(len(logits))
    for position in range(num_draws):
        noise = gumbel_noise(noise_key(11, 0, position), ids)
        counts[int(torch.argmax(logits / temperature + noise))] += 1
    expected = torch.softmax(logits / temperature, -1) * num_draws
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # 5 degrees of freedom: above 30 with probability 1e-5.
    assert chi_square < 30


def test_neighbouring_positions_and_tokens_are_uncorrelated() -> None:
    rows = torch.stack(
        [uniform_noise(noise_key(3, 0, position), torch.arange(4000)) for position in range(8)]
    )
    correlation = torch.corrcoef(rows) - torch.eye(8)
    assert correlation.abs().max() < 5 / math.sqrt(4000)
    along = torch.corrcoef(torch.stack([rows[0, :-1], rows[0, 1:]]))
    assert along[0, 1].abs() < 5 / math.sqrt(4000)
