"""Parameters of ``goodput`` that its parts share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters, as the learner documents them.

    Attributes:
        caps: Speculation lengths, ascending.
        shrinkage: Counts of the parent mixed into each context.
        max_contexts: Most contexts with counts of their own.
        discount: What a round's evidence on a prompt weighs a round later.
        change: CUSUM, in standard deviations, at which a prompt has changed.
        kappa: Tokens that a context is worth to a prompt, before prompts have shown it.
        probe_share: Share of steps with a probe.
        guard_share: Share of steps that decode plainly for comparison.
        trial_share: Share of steps that draft while drafting does not pay.
        guard_errors: Standard errors that make the guard sure.
    """

    caps: tuple[int, ...]
    shrinkage: float
    max_contexts: int
    discount: float
    change: float
    kappa: float
    probe_share: float
    guard_share: float
    trial_share: float
    guard_errors: float
