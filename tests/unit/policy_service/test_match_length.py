from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policy_service.api import NONE, Arm
from policy_service.errors import PolicyConfigError
from policy_service.learners.match_length import MatchLength, MatchLengthState
from policy_service.loading import load_learner

SUFFIX, MODEL = Arm("suffix", 8), Arm("model", 4)
ARMS = (NONE, Arm("suffix", 2), SUFFIX, Arm("model", 2), MODEL)


def chosen(learner: MatchLength, state: MatchLengthState, arms: tuple[Arm, ...] = ARMS) -> Arm:
    return learner.select(state, arms, np.random.default_rng(0))[0]


def test_asks_the_first_drafter_for_its_longest_draft() -> None:
    assert chosen(MatchLength(), MatchLengthState()) == SUFFIX
    assert chosen(MatchLength(drafter="model"), MatchLengthState()) == MODEL


@pytest.mark.parametrize(
    ("params", "score", "kept"),
    [
        ({}, 3.0, 3),
        ({}, 0.0, 0),
        ({}, 30.0, 8),
        ({"factor": 2.0}, 3.0, 6),
        ({"factor": 0.5, "offset": 1.0}, 3.0, 2),
        ({"offset": -2.0}, 1.0, 0),
        ({"min_score": 3.0}, 2.9, 0),
        ({"min_score": 3.0}, 3.0, 3),
    ],
)
def test_drafts_are_cut_to_their_match(params: dict[str, Any], score: float, kept: int) -> None:
    assert MatchLength(**params).trim(SUFFIX, 8, score) == kept


def test_the_fallback_is_asked_after_a_miss_and_kept_whole() -> None:
    learner = MatchLength(fallback="model", min_score=2.0)
    state = learner.update(MatchLengthState(), SUFFIX, 1.0)
    assert chosen(learner, state) == MODEL
    assert learner.trim(MODEL, 4, 0.1) == 4
    state = learner.update(state, MODEL, 1.0)
    assert chosen(learner, state) == SUFFIX
    assert chosen(learner, learner.update(state, SUFFIX, 3.0)) == SUFFIX


def test_without_a_fallback_a_miss_changes_nothing() -> None:
    learner = MatchLength()
    assert chosen(learner, learner.update(MatchLengthState(), SUFFIX, 1.0)) == SUFFIX


def test_with_the_fallback_away_the_first_is_asked_again() -> None:
    learner = MatchLength(fallback="model")
    assert chosen(learner, MatchLengthState(missed=True), (NONE, SUFFIX)) == SUFFIX


def test_without_its_drafter_it_decodes_plainly() -> None:
    assert chosen(MatchLength(drafter="gone"), MatchLengthState()) == NONE
    assert chosen(MatchLength(), MatchLengthState(), (NONE,)) == NONE


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"factor": 0}, "factor"),
        ({"offset": "x"}, "offset"),
        ({"min_score": -1}, "min_score"),
        ({"drafter": 3}, "name of a drafter, got 3"),
        ({"fallback": ""}, "name of a drafter"),
    ],
)
def test_bad_parameters(params: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyConfigError, match=message):
        load_learner("match_length", params)
