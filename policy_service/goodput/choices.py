"""From plan, guard and probes to what is done in a step, and with what probability. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_service.api import NONE, Arm, Choice
from policy_service.goodput.ask import Plan
from policy_service.goodput.guard import Guard
from policy_service.goodput.probes import Probes
from policy_service.goodput.rates import Floats
from policy_service.statistics import ArmValues


@dataclass(frozen=True, slots=True)
class Choices:
    """What the sequences of a step do.

    Attributes:
        arms: Number of each one's arm, -1 for plain decoding, ``[num_sequences]``.
        propensities: With what probability, the same.
        reasons: Why, the same.
        is_probe: Whether it is a probe, the same.
        values: Tokens that each arm brings less the price of its rows, plain decoding first,
            ``[num_sequences, 1 + num_arms]``.
    """

    arms: NDArray[np.intp]
    propensities: NDArray[np.float64]
    reasons: list[str]
    is_probe: NDArray[np.bool_]
    values: Floats

    @property
    def is_drafting(self) -> bool | None:
        """Whether somebody drafts; None if only as a probe, which says nothing of the plan."""
        if self.is_probe.any() and (self.arms >= 0).sum() == 1:
            return None
        return bool((self.arms >= 0).any())

    @classmethod
    def made(
        cls,
        plan: Plan,
        probes: Probes,
        guard: Guard,
        batch_size: int,
        rng: np.random.Generator,
    ) -> Choices:
        """Return the choices of a step; draws twice at most."""
        num = len(plan.arms)
        values = np.ones((num, 1 + plan.values.shape[1]), np.float32)
        values[:, 1:] += plan.values
        is_probe = np.zeros(num, np.bool_)
        chance, verdict = guard.plain_chance(batch_size), guard.verdict(batch_size)
        as_planned = (1.0 - chance) * probes.chosen_anyway()
        as_planned = np.where(plan.arms < 0, as_planned + chance, as_planned)
        if rng.random() < chance:
            why = "drafting did not pay lately" if verdict < 0 else "a plain step to compare with"
            plainly = np.full(num, -1, np.intp)
            propensities = np.where(plan.arms < 0, as_planned, chance)
            return cls(plainly, propensities, [f"guard: {why}"] * num, is_probe, values)
        trial = ", on trial" if verdict < 0 else ""
        reasons = [_reason(plan) + trial] * num
        arms = plan.arms
        probe = probes.draw(rng)
        if probe is not None:
            sequence, arm = probe
            arms = arms.copy()
            arms[sequence] = arm
            reasons[sequence] = "probe: another arm than the best"
            as_planned[sequence] = (1.0 - chance) * probes.chances[sequence, arm]
            is_probe[sequence] = True
        return cls(arms, as_planned, reasons, is_probe, values)

    def explained(self, arms: tuple[Arm, ...]) -> list[Choice]:
        """Return the choices in words and arms."""
        names = (NONE, *arms)
        estimates = _estimates if np.isinf(self.values).any() else ArmValues
        return [
            (names[arm + 1], reason, propensity, estimates(names, values))
            for arm, reason, propensity, values in zip(
                self.arms.tolist(),
                self.reasons,
                self.propensities.tolist(),
                self.values.tolist(),
                strict=True,
            )
        ]


def _estimates(arms: tuple[Arm, ...], values: Sequence[float]) -> ArmValues:
    """Return the values of the arms that were allowed."""
    allowed = [place for place, value in enumerate(values) if value > -np.inf]
    return ArmValues([arms[place] for place in allowed], [values[place] for place in allowed])


def _reason(plan: Plan) -> str:
    """Return the step's estimates in words."""
    rate = plan.tokens / plan.time_ms
    if (plan.arms < 0).all():
        return f"plain decoding is best: {rate:.3g} tokens/ms"
    return (
        f"best goodput: {rate:.3g} tokens/ms, {plan.price:.2g} tokens a row, "
        f"wait {plan.wait_ms:.1f} ms"
    )
