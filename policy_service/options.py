"""Checks of what configuration and requests say about speculation.

All of it can be checked from the configuration alone, so a request is refused where it arrives and
never because some drafter happens to be away. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Collection

from policy_service.api import NONE, Arm, SpeculationOptions
from policy_service.config import PolicyConfig
from policy_service.errors import PolicyConfigError
from policy_service.loading import learner_names, load_learner
from policy_service.naming import unknown

_DRAFTER_PARAMS = ("drafter", "fallback")
"""Parameters of learners that name a drafter."""


def check_options(options: SpeculationOptions, drafters: Collection[str], max_gamma: int) -> None:
    """Check what a request says about speculation.

    Args:
        options: What it says.
        drafters: Names of the configured drafters.
        max_gamma: Largest speculation length that a request may pin.

    Raises:
        PolicyConfigError: If a name is unknown, a value out of range, or two options contradict
            each other; the message says what is right.
    """
    _check_values(options, drafters, max_gamma)
    if options.mode == "off":
        _check_plain(options, "mode 'off'")
    elif options.gamma == 0:
        _check_plain(options, "gamma 0")
    elif options.learner == "none":
        _check_plain(options, "learner 'none'")
    _check_pinned(options)


def _check_values(options: SpeculationOptions, drafters: Collection[str], max_gamma: int) -> None:
    if options.mode not in ("auto", "off"):
        raise PolicyConfigError(unknown("mode", options.mode, ("auto", "off")))
    if options.drafter is not None and options.drafter not in drafters:
        raise PolicyConfigError(unknown("drafter", options.drafter, drafters))
    if options.learner is not None and options.learner not in learner_names():
        raise PolicyConfigError(unknown("learner", options.learner, learner_names()))
    gamma = options.gamma
    if gamma is None:
        return
    if isinstance(gamma, bool) or not isinstance(gamma, int) or not 0 <= gamma <= max_gamma:
        raise PolicyConfigError(f"gamma must be an integer from 0 to {max_gamma}, got {gamma!r}")


def _check_plain(options: SpeculationOptions, because: str) -> None:
    """Refuse what asks for drafts where ``because`` asks for plain decoding."""
    if options.drafter is not None:
        raise PolicyConfigError(
            f"{because} decodes plainly and contradicts drafter {options.drafter!r}; give only one"
        )
    if options.gamma:
        raise PolicyConfigError(
            f"{because} decodes plainly and contradicts gamma {options.gamma}; give only one"
        )
    if options.learner not in (None, "none"):
        raise PolicyConfigError(
            f"{because} decodes plainly and contradicts learner {options.learner!r}; give only one"
        )


def _check_pinned(options: SpeculationOptions) -> None:
    """Refuse a learner with nothing to choose, and a fixed arm that is not named."""
    is_pinned = options.drafter is not None and bool(options.gamma)
    if is_pinned and options.learner not in (None, "fixed"):
        raise PolicyConfigError(
            f"drafter {options.drafter!r} and gamma {options.gamma} leave learner "
            f"{options.learner!r} nothing to choose; give no learner, or 'fixed'"
        )
    if options.learner == "fixed" and not is_pinned:
        raise PolicyConfigError(
            "learner 'fixed' needs the arm it is to keep to: give drafter and gamma"
        )


def arms_of(drafters: Collection[str], gammas: Collection[int]) -> tuple[Arm, ...]:
    """Return all arms: plain decoding, and every drafter with every speculation length.

    >>> [str(arm) for arm in arms_of(["rest"], [2, 4])]
    ['none', 'rest:2', 'rest:4']
    """
    return (NONE, *(Arm(drafter, gamma) for drafter in drafters for gamma in gammas))


def check_config(config: PolicyConfig, drafters: Collection[str]) -> None:
    """Check the configured learner, its parameters, and the arm and drafters that they name.

    Raises:
        PolicyConfigError: If a learner, parameter, arm or drafter is unknown, or a value out of
            range.
    """
    load_learner(config.learner, config.params)
    for name in _DRAFTER_PARAMS:
        drafter = config.params.get(name)
        if drafter is not None and drafter not in drafters:
            message = unknown("drafter", drafter, drafters)
            raise PolicyConfigError(f"{name} of learner {config.learner!r}: {message}")
    arm = config.params.get("arm")
    arms = {str(known) for known in arms_of(drafters, config.gammas)}
    if arm is not None and arm not in arms:
        raise PolicyConfigError(unknown("arm", arm, arms))
