"""The contract's second part, for drafters that work from the target's hidden states.

Knows neither Ray nor any drafting method.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from drafters.api import Drafter

HiddenStates = NDArray[np.floating[Any]]
"""Rows ``[num_tokens, hidden_size]``, in the target's number format or a wider one."""


class FeatureDrafter(Drafter, Protocol):
    """A drafting method that works from the target's hidden states as well as from tokens.

    Each ``open`` and each ``extend`` is followed by ``add_hidden_states``.
    """

    @property
    def needs_hidden_states(self) -> bool:
        """True. Methods without the attribute need none."""

    def add_hidden_states(self, session_id: str, states: HiddenStates) -> None:
        """Take the states that belong to the tokens ``open`` or ``extend`` just brought.

        Args:
            session_id: The session.
            states: As ``DraftRequest.hidden_states``.

        Raises:
            UnknownSessionError: If the session is not open.
        """


def needs_hidden_states(drafter: Drafter) -> bool:
    """Return whether a drafter is a ``FeatureDrafter``."""
    return bool(getattr(drafter, "needs_hidden_states", False))
