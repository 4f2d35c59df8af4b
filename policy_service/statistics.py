"""What several learners need: an arm's sums, a choice among equals, a state that is empty.

This module knows no learner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from policy_service.api import Arm, ArmPrior
from policy_service.errors import PolicyConfigError


@dataclass(frozen=True, slots=True)
class ArmSums:
    """Pulls of one arm and what they earned together; pooled pulls may be fractions.

    Attributes:
        pulls: Number of pulls; an arm is tried exactly if it is above 0, whatever it earned.
        reward: Sum of their rewards.
    """

    pulls: float
    reward: float

    @property
    def mean(self) -> float:
        """Mean reward of a tried arm."""
        return self.reward / self.pulls

    def plus(self, reward: float) -> ArmSums:
        """Return the sums after one more pull."""
        return ArmSums(self.pulls + 1, self.reward + reward)


UNTRIED = ArmSums(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class SumsState:
    """Sums of one prompt's arms.

    Attributes:
        largest_gamma: Largest speculation length among the arms the prompt started with.
        sums: Pulls and rewards by arm, priors included.
        arms: The arms the prompt started with; ``sums`` begins with them, in this order.
    """

    largest_gamma: int
    sums: Mapping[Arm, ArmSums]
    arms: tuple[Arm, ...] = ()

    @classmethod
    def seeded(cls, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> Self:
        """Return the state of a new prompt: the priors' pulls at the priors' means."""
        sums = dict.fromkeys(arms, UNTRIED)
        for arm, prior in priors.items():
            if prior.pulls > 0:
                sums[arm] = ArmSums(prior.pulls, prior.pulls * prior.mean)
        return cls(max((arm.gamma for arm in arms), default=0), sums, tuple(arms))

    def of(self, arms: Sequence[Arm]) -> list[ArmSums]:
        """Return the sums of these arms, in their order.

        Fast for the very tuple that the prompt started with: most rounds allow all arms, and the
        hashes of 16 arms are a fifth of what such a round takes.
        """
        if arms is self.arms and len(arms) == len(self.sums):
            return list(self.sums.values())
        get = self.sums.get
        return [get(arm, UNTRIED) for arm in arms]

    def length(self, arms: Sequence[Arm]) -> int:
        """Return the largest speculation length there is or was, at least 1: the paper's L."""
        return max(self.largest_gamma, 1, max([arm.gamma for arm in arms]))

    def plus(self, arm: Arm, reward: float) -> Self:
        """Return the state after one more pull."""
        sums = {**self.sums, arm: self.sums.get(arm, UNTRIED).plus(reward)}
        return type(self)(self.largest_gamma, sums, self.arms)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        sums = {str(arm): [item.pulls, item.reward] for arm, item in self.sums.items()}
        return {"largest_gamma": self.largest_gamma, "sums": sums, "num_arms": len(self.arms)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gave."""
        sums = {Arm.parse(arm): ArmSums(*item) for arm, item in values["sums"].items()}
        return cls(values["largest_gamma"], sums, tuple(sums)[: values["num_arms"]])


@dataclass(frozen=True, slots=True)
class NoState:
    """The state of a learner that learns nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gave."""
        return cls()


class ArmValues(Mapping[str, float]):
    """A number for each arm, by ``str(arm)``; the names are only made if somebody looks."""

    __slots__ = ("_arms", "_named", "_values")

    def __init__(self, arms: Sequence[Arm], values: Sequence[float]) -> None:
        """Take one value an arm; neither sequence may change afterwards."""
        self._arms = arms
        self._values = values
        self._named: dict[str, float] | None = None

    def of(self, arms: Sequence[Arm]) -> Sequence[float]:
        """Return the numbers of these arms, in their order.

        Raises:
            KeyError: If there is none for one of them.
        """
        if arms is self._arms:
            return self._values
        return [self[str(arm)] for arm in arms]

    def _by_name(self) -> dict[str, float]:
        if self._named is None:
            self._named = {
                str(arm): value for arm, value in zip(self._arms, self._values, strict=True)
            }
        return self._named

    def __getitem__(self, name: str) -> float:
        return self._by_name()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._arms)

    def __repr__(self) -> str:
        return repr(self._by_name())


def highest(values: Mapping[Arm, float], rng: np.random.Generator) -> tuple[Arm, float]:
    """Return the arm with the highest value, equals drawn uniformly, and its probability.

    The generator is only used if there are equals.
    """
    return highest_of(list(values), list(values.values()), rng)


def highest_of(
    arms: Sequence[Arm], values: Sequence[float], rng: np.random.Generator
) -> tuple[Arm, float]:
    """Return the arm with the highest value, as ``highest`` does; one value an arm."""
    best = max(values)
    num_best = values.count(best)
    if num_best == 1:
        return arms[values.index(best)], 1.0
    equals = [arm for arm, value in zip(arms, values, strict=True) if value == best]
    return equals[int(rng.integers(num_best))], 1.0 / num_best


def draw(
    arms: Sequence[Arm], probabilities: Sequence[float], rng: np.random.Generator
) -> tuple[Arm, float]:
    """Draw an arm with these probabilities, which sum to 1; return it and its own.

    An arm of probability 0 is never drawn, whatever rounding does to the sum.
    """
    left = rng.random() * sum(probabilities)
    for arm, probability in zip(arms, probabilities, strict=True):
        left -= probability
        if left < 0:
            return arm, probability
    likeliest = max(range(len(arms)), key=probabilities.__getitem__)
    return arms[likeliest], probabilities[likeliest]


def check_number(learner: str, name: str, value: object, above: float, at_most: float) -> None:
    """Check that a learner's parameter is a number in ``(above, at_most]``.

    Raises:
        PolicyConfigError: If it is not.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not above < float(str(value)) <= at_most:
        raise PolicyConfigError(
            f"{name} of learner {learner!r} must be a number above {above} and at most {at_most}, "
            f"got {value!r}"
        )


def check_drafter(learner: str, name: str, value: object) -> None:
    """Check that a learner's parameter names a drafter, or is None.

    Raises:
        PolicyConfigError: If it does not.
    """
    if value is not None and not (isinstance(value, str) and value):
        raise PolicyConfigError(
            f"{name} of learner {learner!r} must be the name of a drafter, got {value!r}"
        )
