"""What is tuned, and over which values: one thing after the other, each at the best so far.

A grid is a list of steps; a step turns the best policy so far into the candidates to try next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from policy_service.api import Arm
from tests.benchmarks.policy.stage import Policy

Step = Callable[[Policy], list[Policy]]

FACTORS = {
    "ucbspec": ("scale", (1.0, 0.1, 0.02)),
    "exp3spec": ("rate", (1.0, 4.0, 16.0)),
    "hedge": ("rate", (1.0, 4.0, 16.0)),
}
"""The one free factor of each bandit, 1 being its source's."""


def bandit_steps(name: str, gammas: Sequence[int]) -> list[Step]:
    """Return the steps for a bandit: its factor, how many arms, and whether priors are pooled.

    Fewer arms, one length a drafter, are learnt faster, which matters to bandits that take arms as
    unrelated.
    """
    parameter, values = FACTORS[name]
    lengths = (None, *((gamma,) for gamma in gammas))
    return [
        lambda best: [with_param(best, parameter, value) for value in values],
        lambda best: [replace(best, gammas=some) for some in lengths],
        lambda best: [best, replace(best, is_pooled=True)],
    ]


def match_length_steps(drafters: Sequence[str]) -> list[Step]:
    """Return the steps for the match-length rule: its drafter, how picky, and how long."""
    pairs = [(drafter, least) for drafter in drafters for least in (0.0, 1.0, 2.0)]
    return [
        lambda best: [
            with_param(with_param(best, "drafter", drafter), "min_score", least)
            for drafter, least in pairs
        ],
        lambda best: [with_param(best, "factor", factor) for factor in (1.0, 2.0, 4.0)],
    ]


def with_param(policy: Policy, name: str, value: object) -> Policy:
    """Return the policy with another value of a parameter."""
    return replace(policy, params={**policy.params, name: value})


def fixed_arms(arms: Sequence[Arm]) -> list[Policy]:
    """Return every arm played throughout."""
    return [Policy("fixed", {"arm": str(arm)}) for arm in arms]


def batch_table(rates: Mapping[int, Mapping[Arm, float]], arms: Sequence[Arm]) -> Policy:
    """Return the table of the drafter that is best over all batch sizes, by its best lengths.

    Args:
        rates: By batch size, the rate of every arm.
        arms: All arms, plain decoding among them.
    """
    drafters = list(dict.fromkeys(arm.drafter for arm in arms if arm.drafter))

    def best(drafter: str, size: int) -> Arm:
        own = [arm for arm in arms if arm.drafter in ("", drafter)]
        return max(own, key=lambda arm: rates[size][arm])

    def worth(drafter: str) -> float:
        total = 1.0
        for size in rates:
            total *= rates[size][best(drafter, size)]
        return total

    chosen = max(drafters, key=worth)
    table, first = [], 1
    for size in sorted(rates):
        table.append([first, size, best(chosen, size).gamma])
        first = size + 1
    return Policy("batch_table", {"table": table, "drafter": chosen})
