from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.noise import (
    BLOCK_TOKENS,
    Arrivals,
    first_arrivals,
    gumbel_noise,
    key_array,
    noise_key,
)

KEYS = st.integers(0, 2**64 - 1)


def noise_of(key: int, token_ids: NDArray[np.int64] | list[int]) -> NDArray[np.float64]:
    return gumbel_noise(key_array([key]), np.array(token_ids))


@given(KEYS, st.integers(0, 10**6))
def test_a_token_has_the_same_noise_in_every_company(key: int, token: int) -> None:
    alone = noise_of(key, [token])
    among = gumbel_noise(key_array([7, key])[:, None], np.array([[5, token, token + 1]]))
    assert alone[0] == among[1, 1]
    assert np.isfinite(among).all()


@given(KEYS, st.integers(0, 300))
def test_the_largest_of_a_block_is_known_beforehand(key: int, block: int) -> None:
    tokens = np.arange(block * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS)
    times, places = first_arrivals(key_array([7, key]), block + 1)
    noise = noise_of(key, tokens)
    assert noise.max() == -np.log(times[1, block])
    assert noise.argmax() == places[1, block]
    named = gumbel_noise(key_array([key]), tokens, Arrivals(times[1, block:], places[1, block:]))
    assert (named == noise).all()


def test_every_part_of_the_key_matters() -> None:
    keys = {
        noise_key(seed, choice, position)
        for seed in range(8)
        for choice in range(8)
        for position in range(64)
    }
    assert len(keys) == 8 * 8 * 64


def test_the_noise_is_the_one_that_other_replicas_use() -> None:
    # A change of the hash changes every sampled reply: never by accident.
    key = noise_key(1, 2, 3)
    assert key == 0x6AE515C1C0AC7E37
    expected = [-0.7132617309535166, 0.18853883002799535, 3.053433139218381, 0.25164099663778616]
    assert noise_of(key, [0, 1, 2, 300]).tolist() == pytest.approx(expected, rel=1e-14)


def test_large_seeds_and_negative_ones_are_seeds() -> None:
    assert len({noise_key(seed, 0, 0) for seed in (0, -1, 2**63, 2**64 - 2)}) == 4
    assert noise_key(-1, 0, 0) == noise_key(2**64 - 1, 0, 0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_gumbel_max_draws_from_the_softmax(temperature: float) -> None:
    logits = np.array([0.0, 1.0, -1.0, 2.5, 0.3, -4.0])
    num_draws = 20_000
    keys = key_array([noise_key(11, 0, position) for position in range(num_draws)])
    noise = gumbel_noise(keys[:, None], np.arange(len(logits)))
    counts = np.bincount((logits / temperature + noise).argmax(1), minlength=len(logits))
    weights = np.exp(logits / temperature)
    expected = weights / weights.sum() * num_draws
    # 5 degrees of freedom: above 30 with probability 1e-5.
    assert ((counts - expected) ** 2 / expected).sum() < 30


def test_noise_has_the_mean_and_the_spread_of_gumbel_noise() -> None:
    sample = np.concatenate([noise_of(noise_key(7, 0, i), np.arange(2000)) for i in range(20)])
    assert sample.mean() == pytest.approx(0.57722, abs=5 * sample.std() / math.sqrt(len(sample)))
    assert sample.std() == pytest.approx(math.pi / math.sqrt(6), rel=0.03)
