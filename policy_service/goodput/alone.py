"""``goodput`` for a prompt on its own, where nothing is known of scores, contexts and others. Pure.

Acceptance is one number a drafter, at all depths; it is learnt as a prompt's shift is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, replace

import numpy as np

from policy_service.abilities import RoundContext
from policy_service.api import NONE, Arm, ArmPrior, Outcome
from policy_service.goodput.effects import TOKEN_INFORMATION, Effects, fade, learnt
from policy_service.goodput.rates import expit
from policy_service.goodput.state import DrafterEffect, PromptState

_COST_RATE = 0.1


def seeded(priors: Mapping[Arm, ArmPrior]) -> PromptState:
    """Return the state of a new prompt: acceptance as each drafter's best known arm says."""
    effects: dict[str, DrafterEffect] = {}
    pulls: dict[str, float] = {}
    for arm, prior in priors.items():
        if arm != NONE and prior.pulls > pulls.get(arm.drafter, 0.0):
            pulls[arm.drafter] = prior.pulls
            effects[arm.drafter] = DrafterEffect(
                shift_of(prior.mean, arm.gamma), prior.pulls * TOKEN_INFORMATION
            )
    return PromptState(effects)


def shift_of(mean: float, gamma: int) -> float:
    """Return the log odds of acceptance at which drafts of ``gamma`` tokens earn ``mean``.

    >>> abs(shift_of(1.5, 1)) < 1e-4, shift_of(2.0, 1) == shift_of(9.0, 1)
    (True, True)
    """
    low, high = 0.002, 0.998
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, gamma) < mean else (low, middle)
    return float(np.log(low / (1 - low)))


def expected_tokens(acceptance: float, gamma: int) -> float:
    """Return the tokens of a round, ``1 + a + a^2 + ... + a^gamma``."""
    return float(
        gamma + 1 if acceptance >= 1 else (1 - acceptance ** (gamma + 1)) / (1 - acceptance)
    )


def value(state: PromptState, arm: Arm, context: RoundContext) -> float:
    """Return the expected tokens of a round for the time of a plain step."""
    shift = state.of(arm.drafter).shift
    tokens = expected_tokens(1 / (1 + float(np.exp(-shift))), arm.gamma)
    times, batch = context.step_times, context.batch_size
    if times is None:
        return tokens / (1 + state.row_cost * arm.gamma)
    plain_ms = times.predict_ms(batch, batch)
    return tokens * plain_ms / times.predict_ms(batch * (1 + arm.gamma), batch)


def with_cost(state: PromptState, outcome: Outcome) -> PromptState:
    """Return the state after a round showed what a row costs, if it did."""
    if not outcome.num_verified or outcome.plain_ms <= 0 or outcome.alike_ms <= 0:
        return state
    cost = max(0.0, outcome.alike_ms / outcome.plain_ms - 1) / outcome.num_verified
    return replace(state, row_cost=state.row_cost + _COST_RATE * (cost - state.row_cost))


def after_draft(
    state: PromptState,
    arm: Arm,
    offered: int,
    accepted: int,
    *,
    discount: float,
    change: float,
    kappa: float,
) -> PromptState:
    """Return the state after a round; what is known of other drafters fades as well.

    Args:
        state: The state before.
        arm: The round's.
        offered: Tokens verified of which all above were accepted.
        accepted: Of those, how many were.
        discount: What evidence weighs a round later.
        change: CUSUM at which a prompt has changed.
        kappa: Tokens that the prior is worth.
    """
    precision = kappa * TOKEN_INFORMATION
    names = sorted({*state.effects, arm.drafter} - {""})
    rows = [astuple(state.of(name)) for name in names]
    effects = Effects(np.array(rows, np.float32).reshape(-1, 4).T)
    fade(effects, discount, precision)
    if arm != NONE:
        place = slice(names.index(arm.drafter), names.index(arm.drafter) + 1)
        one = effects.at(place)
        expected = expit(one.shift)
        surprise, spread = accepted - offered * expected, offered * expected * (1 - expected)
        effects.put(learnt(one, surprise, spread, precision=precision, threshold=change), place)
    values = effects.fields.T.tolist()
    return replace(
        state,
        effects={name: DrafterEffect(*one) for name, one in zip(names, values, strict=True)},
        rounds=state.rounds + 1,
    )
