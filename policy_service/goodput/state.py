"""State of one prompt's ``goodput``: how it differs from its context, by drafter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class DrafterEffect:
    """How well a drafter does on a prompt, as in ``effects``.

    Attributes:
        shift: On the log odds of acceptance.
        information: What has been learnt of it.
        rise: CUSUM of surprises upwards.
        fall: CUSUM of surprises downwards.
    """

    shift: float = 0.0
    information: float = 0.0
    rise: float = 0.0
    fall: float = 0.0


@dataclass(frozen=True, slots=True)
class PromptState:
    """State of one prompt.

    Attributes:
        effects: By drafter.
        row_cost: Time that a drafted token adds to a step, over that of a plain step, as far as
            rounds showed it; only used where nobody says how long steps take.
        rounds: Rounds so far.
    """

    effects: Mapping[str, DrafterEffect] = field(default_factory=dict)
    row_cost: float = 0.02
    rounds: int = 0

    def of(self, drafter: str) -> DrafterEffect:
        """Return the effect of a drafter, that of an average one if it is not known."""
        return self.effects.get(drafter, DrafterEffect())

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gave."""
        effects = {name: DrafterEffect(**one) for name, one in values["effects"].items()}
        return cls(effects, values["row_cost"], values["rounds"])
