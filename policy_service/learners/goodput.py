"""Tokens per time of a whole step, from acceptance per position and measured times.

Arms are not treated as unrelated. How likely a draft's token is accepted if all above it were is
counted per context, drafter, bucket of the draft's score and depth (``goodput.cells``), shrunk
from pooled counts (``goodput.rates``) and shifted to the prompt (``goodput.effects``). One verified
draft so teaches all its prefixes, and what was not verified is censored. A step is planned as a
whole:

* Ask (``goodput.ask``) chooses which drafters to call, as the step waits for the slowest, and each
  sequence's drafter and largest length, so that expected tokens over expected time are most;
* Trim (``goodput.trim``) pools the drafts' tokens, sorts them by survival and verifies the ``N``
  best that maximise ``(sequences + sum of survival) / T(N)``;
* probes (``goodput.probes``) and a guard (``goodput.guard``) keep it honest.

In the same spirit: SmartSpec's goodput (arXiv 2406.14066), vLLM's adaptive verification, TETRIS
(2502.15197). That much is a Verifier's ``Fleet``. ``select`` and the methods beside it are the same
for a prompt on its own, where nothing is known of scores and contexts: acceptance is one number a
drafter at all depths, seeded from the priors of its arms, and a round tries another arm by a coin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policy_service.abilities import RoundContext
from policy_service.api import Arm, ArmPrior, Choice, Decision, Outcome
from policy_service.config import PolicyConfig
from policy_service.goodput.alone import after_draft, seeded, value, with_cost
from policy_service.goodput.fleet import Fleet
from policy_service.goodput.settings import Settings
from policy_service.goodput.state import PromptState
from policy_service.statistics import ArmValues, check_number, highest_of

_LEAST = -1e-12


@dataclass(frozen=True, slots=True)
class Goodput:
    """The learner.

    Attributes:
        discount: What a round's evidence on its prompt weighs a round later, in (0, 1].
        change: CUSUM of surprises, in standard deviations, at which a prompt counts as changed.
        kappa: Tokens that a context's rates are worth to a prompt, until prompts have shown how
            alike they are.
        probe_share: Share of steps, or rounds of a prompt alone, that try another arm.
        guard_share: Share of steps that decode plainly, to compare; an eighth of it when sure.
        trial_share: Share of steps that draft nevertheless while drafting does not pay.
        guard_errors: Standard errors on either side that make the guard sure.
    """

    discount: float = 0.97
    change: float = 6.0
    kappa: float = 6.0
    probe_share: float = 0.03
    guard_share: float = 1 / 64
    trial_share: float = 1 / 16
    guard_errors: float = 2.0

    name: ClassVar[str] = "goodput"

    def __post_init__(self) -> None:
        check_number(self.name, "discount", self.discount, above=0, at_most=1)
        check_number(self.name, "change", self.change, above=0, at_most=1e6)
        check_number(self.name, "kappa", self.kappa, above=0, at_most=1000)
        check_number(self.name, "probe_share", self.probe_share, above=_LEAST, at_most=0.5)
        check_number(self.name, "guard_share", self.guard_share, above=_LEAST, at_most=0.5)
        check_number(self.name, "trial_share", self.trial_share, above=0, at_most=1)
        check_number(self.name, "guard_errors", self.guard_errors, above=0, at_most=1000)

    def batch_planner(self, config: PolicyConfig) -> Fleet:
        """Return what one Verifier keeps."""
        settings = Settings(
            caps=tuple(sorted(config.gammas)),
            shrinkage=config.shrinkage,
            max_contexts=config.max_contexts,
            discount=self.discount,
            change=self.change,
            kappa=self.kappa,
            probe_share=self.probe_share,
            guard_share=self.guard_share,
            trial_share=self.trial_share,
            guard_errors=self.guard_errors,
        )
        return Fleet(settings)

    def initial_state(self, arms: Sequence[Arm], priors: Mapping[Arm, ArmPrior]) -> PromptState:
        """Return the state of a new prompt on its own."""
        return seeded(priors)

    def select(
        self, state: PromptState, allowed: Sequence[Arm], rng: np.random.Generator
    ) -> Choice:
        """Choose where nobody says how long steps take."""
        return self.select_in(state, RoundContext(tuple(allowed)), rng)

    def select_in(
        self, state: PromptState, context: RoundContext, rng: np.random.Generator
    ) -> Choice:
        """Choose the arm with most tokens per time, or by a coin any other.

        The estimates are expected tokens for the time of a plain step.
        """
        arms = context.allowed
        values = [value(state, arm, context) for arm in arms]
        best, _ = highest_of(arms, values, rng)
        others = [arm for arm in arms if arm != best]
        if others and rng.random() < self.probe_share:
            probed = others[int(rng.integers(len(others)))]
            return probed, "probe", self._chance(arms, values, probed), ArmValues(arms, values)
        return best, "best goodput", self._chance(arms, values, best), ArmValues(arms, values)

    def _chance(self, arms: Sequence[Arm], values: Sequence[float], chosen: Arm) -> float:
        """Return with what probability an arm is chosen, as one of the best or as a probe."""
        if len(arms) == 1:
            return 1.0
        highest = max(values)
        num_best = values.count(highest)
        first = 1 / num_best if values[list(arms).index(chosen)] == highest else 0.0
        return (1 - self.probe_share) * first + self.probe_share * (1 - first) / (len(arms) - 1)

    def update(self, state: PromptState, arm: Arm, reward: float) -> PromptState:
        """Return the state after a round of which only a reward in tokens is known."""
        accepted = min(arm.gamma, max(0, round(reward - 1)))
        return self._after(state, arm, min(arm.gamma, accepted + 1), accepted)

    def update_outcome(
        self, state: PromptState, context: RoundContext, decision: Decision, outcome: Outcome
    ) -> PromptState:
        """Return the state after a round; an empty draft is taken for a rejected token."""
        verified = outcome.num_verified or int(outcome.draft_status == "empty")
        offered = min(verified, outcome.num_accepted + 1)
        state = with_cost(state, outcome)
        return self._after(state, decision.arm, offered, outcome.num_accepted)

    def _after(self, state: PromptState, arm: Arm, offered: int, accepted: int) -> PromptState:
        return after_draft(
            state,
            arm,
            offered,
            accepted,
            discount=self.discount,
            change=self.change,
            kappa=self.kappa,
        )


LEARNER = Goodput
