"""The noise has nothing to do with itself: over seeds, choices, positions, tokens and blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from models.noise import BLOCK_TOKENS, first_arrivals, gumbel_noise, key_array, noise_key
from tests.statistical.chi_square import SIGNIFICANT, survival

Grid = NDArray[np.float64]

NUM_PAIRS = 20_000
NUM_BINS = 8


def uniform(keys: list[int], token_ids: NDArray[np.int64]) -> Grid:
    """Return noise, ``[num_keys, num_tokens]``, as numbers that are uniform if it is Gumbel."""
    return np.exp(-np.exp(-gumbel_noise(key_array(keys)[:, None], token_ids)))


def p_independent(one: Grid, other: Grid) -> float:
    """Return how likely pairs are to fill a square so unevenly, if they are independent."""
    cells = (one * NUM_BINS).astype(int) * NUM_BINS + (other * NUM_BINS).astype(int)
    counts = np.bincount(cells.ravel(), minlength=NUM_BINS**2)
    expected = counts.sum() / NUM_BINS**2
    return survival(float(((counts - expected) ** 2 / expected).sum()), NUM_BINS**2 - 1)


def keys_of(part: str, value: int) -> list[int]:
    """Return keys in which one part has a value and the other two run."""
    keys = []
    for i in range(NUM_PAIRS // 20):
        seed, choice, position = {
            "seed": (value, i % 40, i // 40),
            "choice": (i % 40, value, i // 40),
            "position": (i % 40, i // 40, value),
        }[part]
        keys.append(noise_key(seed, choice, position))
    return keys


@pytest.mark.parametrize("part", ["seed", "choice", "position"])
@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (7, 8), (0, 1 << 20), (3, 1 << 40)])
def test_two_values_of_a_part_of_the_key(part: str, one: int, other: int) -> None:
    tokens = np.arange(20)
    pair = [uniform(keys_of(part, value), tokens) for value in (one, other)]
    assert p_independent(*pair) > SIGNIFICANT


def test_parts_of_the_key_that_change_places() -> None:
    tokens = np.arange(20)
    numbers = [(i % 100, 100 + i // 100) for i in range(1000)]
    one = [noise_key(7, first, second) for first, second in numbers]
    other = [noise_key(7, second, first) for first, second in numbers]
    assert p_independent(uniform(one, tokens), uniform(other, tokens)) > SIGNIFICANT


@pytest.mark.parametrize("step", [1, 2, 17, BLOCK_TOKENS - 1, BLOCK_TOKENS, 1 << 16])
def test_two_tokens_of_a_position(step: int) -> None:
    keys = [noise_key(seed, 0, 9) for seed in range(NUM_PAIRS // 20)]
    first = np.arange(0, 20 * 3, 3)  # within a block and, for the larger steps, in another one
    assert p_independent(uniform(keys, first), uniform(keys, first + step)) > SIGNIFICANT


def test_correlations_over_a_grid_of_keys() -> None:
    keys = [noise_key(s, c, p) for s in range(4) for c in range(4) for p in range(8)]
    numbers = uniform(keys, np.arange(2000))
    matrix = np.atleast_2d(np.corrcoef(numbers))
    correlations = matrix[np.triu_indices(len(keys), 1)] * math.sqrt(2000)
    # 8,128 of them, each about standard normal: the largest is above 5.5 with probability 3e-4.
    assert np.abs(correlations).max() < 5.5
    assert correlations.std() == pytest.approx(1, abs=0.05)
    assert abs(correlations.mean()) < 5 / math.sqrt(len(correlations))


def test_the_largest_of_a_block_is_anywhere_and_as_large_as_it_should_be() -> None:
    keys = key_array([noise_key(1, 0, position) for position in range(6000)])
    noise = gumbel_noise(keys[:, None], np.arange(BLOCK_TOKENS, 2 * BLOCK_TOKENS))
    places = np.bincount(noise.argmax(1), minlength=BLOCK_TOKENS)
    expected = len(keys) / BLOCK_TOKENS
    statistic = float(((places - expected) ** 2 / expected).sum())
    assert survival(statistic, BLOCK_TOKENS - 1) > SIGNIFICANT
    # The largest of n is Gumbel noise shifted by log n, and unrelated to its place.
    times = first_arrivals(keys, 2).times[:, 1:]
    numbers = np.exp(-times * BLOCK_TOKENS)
    assert p_independent(numbers, (noise.argmax(1)[:, None] + 0.5) / BLOCK_TOKENS) > SIGNIFICANT


def test_the_noise_of_each_token_of_a_block_is_gumbel_noise() -> None:
    keys = [noise_key(2, 0, position) for position in range(400)]
    numbers = uniform(keys, np.arange(BLOCK_TOKENS))
    counts = np.bincount((numbers * 100).astype(int).ravel(), minlength=100)
    statistic = float(((counts - numbers.size / 100) ** 2 / (numbers.size / 100)).sum())
    assert survival(statistic, 99) > SIGNIFICANT
    # Down to the tail: the share of tokens whose noise is above that of one in ten thousand.
    rare = float((numbers > 1 - 1e-4).sum())
    assert abs(rare - numbers.size * 1e-4) < 5 * math.sqrt(numbers.size * 1e-4)
