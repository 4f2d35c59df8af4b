"""LinUCB with disjoint linear models (Li, Chu, Langford, Schapire 2010, arXiv 1003.0146, Alg. 1).

Each arm has a ridge regression of its reward on what is known when the round is chosen, and the arm
with the highest upper bound is played::

    A_a = I + sum of x x^T,   b_a = sum of reward * x        over the rounds in which a was played
    index_a = theta_a . x + alpha * sqrt(x . A_a^-1 x),      theta_a = A_a^-1 b_a

Rewards are divided by ``L + 1`` so that they lie in [0, 1]; the estimates are indices in the unit
of the reward. The context vector ``x`` (BanditSpec names contexts as future work):

==  =====================================================================================
0   1, the intercept; a pooled prior of ``n`` pulls counts as ``n`` rounds of it alone
1   what the prompt's last round earned: text that was easy to predict often stays so
2   batch size of the step, log2 / 8: time rewards depend on it
3   code-likeness of the prompt
4   temperature, at most 1
5   length of the prompt, log2 / 16
==  =====================================================================================

The last three do not change within a prompt; together with the intercept they are then one number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from policy_service.abilities import RoundContext
from policy_service.api import Arm, ArmPrior, Choice, Decision
from policy_service.statistics import ArmValues, check_number, highest_of

SIZE = 6
"""Length of a context vector."""


@dataclass(frozen=True, slots=True, eq=False)
class LinUcbState:
    """Regressions of one prompt's arms, and one more, of an arm that was never played.

    Attributes:
        top: The highest reward there is, ``L + 1``.
        last: What the last round earned, as a share of ``top``.
        rows: The row of each arm that has a regression, in order.
        inverses: ``A^-1`` of each arm, ``[num_arms + 1, SIZE, SIZE]``; the last is the identity.
        thetas: Coefficients of each arm, ``[num_arms + 1, SIZE]``; the last are zeros.
    """

    top: float
    last: float
    rows: Mapping[Arm, int]
    inverses: NDArray[np.float64]
    thetas: NDArray[np.float64]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinUcbState) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.top, self.last, tuple(self.rows)))

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "top": self.top,
            "last": self.last,
            "arms": [str(arm) for arm in self.rows],
            "inverses": self.inverses.tolist(),
            "thetas": self.thetas.tolist(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gave."""
        rows = {Arm.parse(arm): row for row, arm in enumerate(values["arms"])}
        inverses, thetas = np.array(values["inverses"]), np.array(values["thetas"])
        return cls(values["top"], values["last"], rows, inverses, thetas)


@dataclass(frozen=True, slots=True)
class LinUcb:
    """The learner.

    Attributes:
        alpha: Width of the upper bounds, as a share of the range of rewards. From 1 on an arm
            never played looks at least as good as any other can be.
    """

    alpha: float = 1.0

    name: ClassVar[str] = "linucb"

    def __post_init__(self) -> None:
        check_number(self.name, "alpha", self.alpha, above=0, at_most=1000)

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> LinUcbState:
        """Return the state of a new prompt, whose priors are rounds without any context."""
        top = 1.0 + max(1, max((arm.gamma for arm in arms), default=1))
        inverses = np.tile(np.eye(SIZE), (len(arms) + 1, 1, 1))
        thetas = np.zeros((len(arms) + 1, SIZE))
        means = []
        for row, arm in enumerate(arms):
            prior = priors.get(arm)
            if prior is not None:
                inverses[row, 0, 0] = 1 / (1 + prior.pulls)
                thetas[row, 0] = prior.pulls * prior.mean / top / (1 + prior.pulls)
                means.append(prior.mean / top)
        last = sum(means) / len(means) if means else 1 / top
        rows = {arm: row for row, arm in enumerate(arms)}
        return LinUcbState(top, last, rows, inverses, thetas)

    def select(
        self, state: LinUcbState, allowed: Sequence[Arm], rng: np.random.Generator
    ) -> Choice:
        """Choose for a request of which nothing is known."""
        return self.select_in(state, RoundContext(tuple(allowed)), rng)

    def select_in(
        self, state: LinUcbState, context: RoundContext, rng: np.random.Generator
    ) -> Choice:
        """Choose the arm with the highest index; the estimates are the indices."""
        x = context_vector(context, state.last)
        never_played, row_of = len(state.rows), state.rows.get
        rows = [row_of(arm, never_played) for arm in context.allowed]
        variances = (state.inverses[rows] @ x) @ x
        indices = state.top * (state.thetas[rows] @ x + self.alpha * np.sqrt(variances))
        values = indices.tolist()
        best, propensity = highest_of(context.allowed, values, rng)
        return best, "highest index", propensity, ArmValues(context.allowed, values)

    def update(self, state: LinUcbState, arm: Arm, reward: float) -> LinUcbState:
        """Return the state after a round of a request of which nothing is known."""
        return self._learnt(state, context_vector(RoundContext((arm,)), state.last), arm, reward)

    def update_from(
        self, state: LinUcbState, context: RoundContext, decision: Decision, reward: float
    ) -> LinUcbState:
        """Return the state after a round."""
        return self._learnt(state, context_vector(context, state.last), decision.arm, reward)

    def _learnt(
        self, state: LinUcbState, x: NDArray[np.float64], arm: Arm, reward: float
    ) -> LinUcbState:
        """Return the state with one more round in an arm's regression (Sherman-Morrison)."""
        rows, inverses, thetas = state.rows, state.inverses.copy(), state.thetas.copy()
        row = rows.get(arm, len(rows))
        if row == len(rows):
            rows = {**rows, arm: row}
            inverses, thetas = (
                np.append(inverses, inverses[-1:], 0),
                np.append(thetas, thetas[-1:], 0),
            )
        gain = inverses[row] @ x
        gain /= 1 + x @ gain
        share = reward / state.top
        thetas[row] += gain * (share - thetas[row] @ x)
        inverses[row] -= np.outer(gain, inverses[row] @ x)
        return LinUcbState(state.top, share, rows, inverses, thetas)


def context_vector(context: RoundContext, last: float) -> NDArray[np.float64]:
    """Return what is known when a round is chosen, every entry about 1 at most, ``[SIZE]``."""
    features = context.features
    return np.array(
        [
            1.0,
            last,
            math.log2(max(1, context.batch_size)) / 8,
            features.code_likeness,
            min(1.0, features.temperature),
            math.log2(1 + features.num_prompt_tokens) / 16,
        ]
    )


LEARNER = LinUcb
