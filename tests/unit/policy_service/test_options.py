from __future__ import annotations

import pickle
from typing import Any

import pytest

from policy_service.api import SpeculationOptions
from policy_service.config import PolicyConfig
from policy_service.errors import PolicyConfigError
from policy_service.loading import load_learner
from policy_service.options import check_config, check_options

DRAFTERS = ("prompt_lookup", "rest")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "off"},
        {"mode": "off", "gamma": 0},
        {"mode": "off", "learner": "none"},
        {"gamma": 0},
        {"gamma": 16},
        {"gamma": 3, "learner": "ucbspec"},
        {"drafter": "rest"},
        {"drafter": "rest", "learner": "uniform"},
        {"drafter": "rest", "gamma": 4},
        {"drafter": "rest", "gamma": 4, "learner": "fixed"},
        {"learner": "none"},
        {"learner": "ucbspec", "explain": True},
    ],
)
def test_good_options(options: dict[str, Any]) -> None:
    check_options(SpeculationOptions(**options), DRAFTERS, max_gamma=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drafter": "prompt_lokup"}, "did you mean 'prompt_lookup'"),
        ({"drafter": ""}, "unknown drafter ''"),
        ({"learner": "ucbspek"}, "did you mean 'ucbspec'"),
        ({"mode": "on"}, "unknown mode 'on'"),
        ({"gamma": 17}, "from 0 to 16, got 17"),
        ({"gamma": -1}, "from 0 to 16, got -1"),
        ({"gamma": True}, "integer from 0 to 16"),
        ({"mode": "off", "drafter": "rest"}, "contradicts drafter 'rest'"),
        ({"mode": "off", "gamma": 2}, "contradicts gamma 2"),
        ({"mode": "off", "learner": "ucbspec"}, "contradicts learner 'ucbspec'"),
        ({"gamma": 0, "drafter": "rest"}, "contradicts drafter"),
        ({"gamma": 0, "learner": "uniform"}, "contradicts learner"),
        ({"learner": "none", "drafter": "rest"}, "learner 'none' decodes plainly"),
        ({"learner": "none", "gamma": 4}, "contradicts gamma 4"),
        ({"drafter": "rest", "gamma": 4, "learner": "ucbspec"}, "nothing to choose"),
        ({"learner": "fixed"}, "give drafter and gamma"),
        ({"learner": "fixed", "drafter": "rest"}, "give drafter and gamma"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyConfigError, match=message) as caught:
        check_options(SpeculationOptions(**options), DRAFTERS, max_gamma=16)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_good_configuration() -> None:
    check_config(PolicyConfig(), DRAFTERS)
    check_config(PolicyConfig(learner="fixed", params={"arm": "rest:4"}), DRAFTERS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learner": "ucbspecc"}, "did you mean 'ucbspec'"),
        ({"learner": "ucbspec", "params": {"scael": 1}}, "did you mean 'scale'"),
        ({"learner": "fixed", "params": {"arm": "rest:5"}}, "unknown arm 'rest:5'"),
        ({"learner": "fixed", "params": {"arm": "rest"}}, "an arm is 'none' or"),
        ({"learner": "fixed", "params": {"arm": 7}}, "arm of learner 'fixed'"),
        (
            {"learner": "match_length", "params": {"fallback": "suffix"}},
            "fallback of learner 'match_length': unknown drafter 'suffix'",
        ),
        ({"learner": "batch_table", "params": {"drafter": "prompt_lokup"}}, "did you mean"),
        ({"learner": "goodput", "params": {"discount": 0}}, "discount of learner 'goodput'"),
    ],
)
def test_bad_configuration(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyConfigError, match=message):
        check_config(PolicyConfig(**values), DRAFTERS)


@pytest.mark.parametrize("gammas", [(0,), (2, 2), (17,)])
def test_bad_gammas(gammas: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="gammas must"):
        PolicyConfig(gammas=gammas)


def test_unknown_learner_lists_what_there_is() -> None:
    with pytest.raises(PolicyConfigError, match=r"known: .*fixed, .*none, .*ucbspec, uniform"):
        load_learner("xyz", {})
