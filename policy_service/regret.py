"""Stopping-time regret, as BanditSpec defines it (arXiv 2505.15141, sections 3 to 5).

A reply of ``length`` tokens ends with the round that emits the last of them; the number of rounds
until then is the stopping time ``ST``. The regret of an algorithm is how many rounds more it needs
than the best single arm played throughout, in expectation over the same prompt::

    Reg = E[ST(algorithm)] - min over arms i of E[ST(always i)]

It counts rounds, not what they cost: every round is one forward of the target model.
This module knows no learner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def stopping_time(tokens: NDArray[np.float64], length: float) -> int:
    """Return after how many rounds a reply of ``length`` tokens is complete.

    For rounds of 1 to ``L + 1`` tokens this is at least ``length / (L + 1)`` and at most
    ``length`` (Proposition 3.1).

    Args:
        tokens: Tokens of each round, ``[num_rounds]``.
        length: Tokens of the reply.

    Raises:
        ValueError: If the rounds are too few for the reply.

    >>> stopping_time(np.array([1.0, 3.0, 2.0]), 4)
    2
    """
    sums = np.cumsum(tokens)
    rounds = int(np.searchsorted(sums, length)) + 1
    if rounds > len(sums):
        emitted = sums[-1] if len(sums) else 0
        raise ValueError(f"expected rounds for {length} tokens, got {len(sums)} with {emitted}")
    return rounds


def fixed_stopping_times(tokens: NDArray[np.float64], length: float) -> NDArray[np.int64]:
    """Return the stopping time of each arm played throughout, ``[num_arms]``.

    Args:
        tokens: Tokens that each arm has in each round, ``[num_rounds, num_arms]``.
        length: Tokens of the reply.

    Raises:
        ValueError: If the rounds are too few for some arm.
    """
    columns = range(tokens.shape[1])
    return np.array([stopping_time(tokens[:, arm], length) for arm in columns], dtype=np.int64)


def stopping_time_regret(stopping_times: NDArray[np.float64], fixed: NDArray[np.float64]) -> float:
    """Return the regret estimated from repeated runs on the same prompt.

    The best arm is the one that is best on average, in hindsight, over the runs.

    Args:
        stopping_times: Those of the algorithm, ``[num_runs]``.
        fixed: Those of each arm played throughout, ``[num_runs, num_arms]``.

    >>> stopping_time_regret(np.array([6.0, 8.0]), np.array([[9.0, 4.0], [9.0, 6.0]]))
    2.0
    """
    return float(np.mean(stopping_times) - np.min(np.mean(fixed, axis=0)))


def pull_regret(pulls: Sequence[float], means: Sequence[float]) -> float:
    """Return the regret of so many pulls of arms with these means, but for the last round.

    By Wald's identity every pull of an arm that is worse by ``gap`` costs ``gap / best mean``
    rounds: this is the sum that the paper's proof of Theorem 4.3 bounds. It is free of the noise
    that stopping times have.

    >>> pull_regret([10, 4], [4.0, 2.0])
    2.0
    """
    best = max(means)
    return sum(count * (best - mean) / best for count, mean in zip(pulls, means, strict=True))


def ucbspec_bound(
    means: Sequence[float], length: float, largest_gamma: float, delta: float = 0.5
) -> float:
    """Return the explicit bound on the regret of UCBSpec (the paper's equation 42).

    With ``gap_i = best mean - mean_i`` it is the sum over the other arms of
    ``gap_i / best * (4 + 2 L^2 / gap_i^2 * (1 + 2 ln(L K len^2 / (gap_i delta))))``, plus
    ``pi^2 delta / 6 + K``.

    Args:
        means: Mean tokens of a round of each arm.
        length: Expected tokens of the reply.
        largest_gamma: The paper's ``L``.
        delta: Parameter of the algorithm.
    """
    best, num_arms = max(means), len(means)
    total = math.pi**2 * delta / 6 + num_arms
    for gap in (best - mean for mean in means if mean < best):
        log = math.log(largest_gamma * num_arms * length**2 / (gap * delta))
        total += gap / best * (4 + 2 * largest_gamma**2 / gap**2 * (1 + 2 * log))
    return total


def exp3spec_bound(
    length: float, largest_gamma: float, num_arms: int, best_stopping_time: float
) -> float:
    """Return the bound on the regret of EXP3Spec against rewards fixed beforehand (Theorem 5.3).

    It is ``2 L min(sqrt(len K ln K), 2 L K ln K + sqrt(ST* K ln K))``.

    Args:
        length: Tokens of the reply.
        largest_gamma: The paper's ``L``.
        num_arms: The paper's ``K``.
        best_stopping_time: Stopping time of the best single arm.
    """
    spread = num_arms * math.log(num_arms)
    by_length = math.sqrt(length * spread)
    by_rounds = 2 * largest_gamma * spread + math.sqrt(best_stopping_time * spread)
    return 2 * largest_gamma * min(by_length, by_rounds)
