"""Drills are found by name, and each says what it is about."""

from __future__ import annotations

import pytest

from cluster.drills.api import Outcome
from cluster.drills.catalogue import drill, names
from cluster.errors import DrillError


def test_every_drill_can_be_loaded_and_says_what_must_hold() -> None:
    assert len(names()) >= 10
    for name in names():
        assert drill(name).about.endswith(".")
        assert drill(name).run.__doc__


def test_an_unknown_drill_is_told_with_the_nearest_one() -> None:
    with pytest.raises(DrillError, match="did you mean verifier-killed"):
        drill("verifier-kiled")


def test_a_problem_fails_a_drill() -> None:
    assert Outcome({}).passed
    assert not Outcome({}, ("a reply was lost",)).passed
