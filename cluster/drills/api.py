"""What a drill is and what it finds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.drills.stage import Stage

Figures = Mapping[str, float | int | str]
"""What was measured, by name."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The system that a drill is run on.

    Attributes:
        verifier_nodes: Nodes for Verifiers, one each.
        drafter_nodes: Nodes for drafter workers, one each.
        gcs_on_redis: Ray's own tables are kept in a Redis, and every node has an HTTP proxy.
    """

    verifier_nodes: int = 2
    drafter_nodes: int = 2
    gcs_on_redis: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a drill found.

    Attributes:
        figures: What was measured.
        problems: What should not be; the drill is green without any.
    """

    figures: Figures
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all was as promised."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill.

    Attributes:
        about: What is done and what must hold, in a sentence.
        run: Does it, on a system that serves, and leaves it whole.
        layout: The system it needs.
    """

    about: str
    run: Callable[[Stage], Outcome]
    layout: Layout = field(default_factory=Layout)
