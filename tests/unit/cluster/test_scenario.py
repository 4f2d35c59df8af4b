"""Scenarios: what is shipped, and how faults in a file are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from cluster.errors import ScenarioError
from cluster.loadtest.prompts import prompt_pools
from cluster.loadtest.scenario import (
    SHIPPED,
    Checks,
    Phase,
    RequestSettings,
    Scenario,
    Slo,
    load_scenario,
    parse_scenario,
)

GOOD = """\
name: small
phases:
  - name: chat
    duration_s: 10
    rate: 2
    mix: {chat: 1}
"""


def lines_of(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "my.yaml")
    return str(caught.value).splitlines()


NEEDS_PROMPTS = {"paper"}


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_scenarios_can_be_run_with_shipped_prompts(path: Path) -> None:
    scenario, found = load_scenario(path.stem)
    assert found == path
    assert scenario.name == path.stem
    assert scenario.description
    if path.stem in NEEDS_PROMPTS:
        with pytest.raises(ScenarioError, match="no prompts of workload"):
            prompt_pools(scenario, found)
    else:
        assert all(len(pool) >= 10 for pool in prompt_pools(scenario, found).values())


@pytest.mark.parametrize("model", [Scenario, Phase, RequestSettings, Slo, Checks])
def test_every_key_is_explained(model: type[BaseModel]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_a_misspelt_key_is_told_with_its_line_and_the_right_name() -> None:
    (line,) = lines_of(GOOD.replace("rate: 2", "rat: 2\n    rate: 2"))
    assert line == "my.yaml, line 5: phases.0.rat: unknown key; did you mean rate?"


def test_a_missing_key_is_told_with_the_line_of_what_lacks_it() -> None:
    (line,) = lines_of(GOOD.replace("    rate: 2\n", ""))
    assert line.startswith("my.yaml, line 3: phases.0.rate: field required")


def test_every_wrong_value_is_told_with_its_line_and_what_was_found() -> None:
    first, second = lines_of(GOOD.replace("10", "-1").replace("rate: 2", "rate: fast"))
    assert first == "my.yaml, line 4: phases.0.duration_s: input should be greater than 0, found -1"
    assert second.startswith("my.yaml, line 5: phases.0.rate: input should be a valid number")


@pytest.mark.parametrize("mix", ["{chat: 0}", "{chat: 1, code: -1}"])
def test_weights_from_which_nothing_can_be_drawn_are_told(mix: str) -> None:
    (line,) = lines_of(GOOD.replace("{chat: 1}", mix))
    assert line.startswith("my.yaml, line 3: phases.0: mix: weights must be 0 or more")


def test_a_scenario_without_phases_is_told() -> None:
    (line,) = lines_of("name: empty\nphases: []\n")
    assert line == "my.yaml, line 2: phases: expected at least one phase"


def test_what_is_not_yaml_is_told_with_its_line() -> None:
    (line,) = lines_of("name: small\nphases: [\n")
    assert line.startswith("my.yaml, line 3: not YAML")


def test_a_list_is_no_scenario() -> None:
    assert lines_of("- 1\n") == ["my.yaml: expected keys and values, found list"]


def test_an_unknown_name_is_told_with_those_that_are_shipped() -> None:
    with pytest.raises(ScenarioError, match=r"cannot read the scenario nosuch.*shipped are .*sm"):
        load_scenario("nosuch")


def test_a_workload_without_prompts_is_told_with_those_there_are(tmp_path: Path) -> None:
    scenario = parse_scenario(GOOD.replace("chat: 1", "chess: 1"), "my.yaml")
    with pytest.raises(ScenarioError, match=r"no prompts of workload 'chess'.*chat, code"):
        prompt_pools(scenario, tmp_path / "my.yaml")


def test_prompts_of_a_folder_are_found_by_workload_and_category(tmp_path: Path) -> None:
    row = '{{"id": "{}", "workload": "bench", "category": "{}", "turns": ["Hello"]}}\n'
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "one.jsonl").write_text(row.format("a", "rag") + row.format("b", "qa"))
    text = GOOD.replace("{chat: 1}", "{bench: 1, bench/rag: 1}")
    named = parse_scenario("prompts: some\n" + text, "my.yaml")
    for scenario in (named, parse_scenario(text, "my.yaml").with_prompts(tmp_path / "some")):
        pools = prompt_pools(scenario, tmp_path / "my.yaml")
        assert {name: [prompt.id for prompt in pool] for name, pool in pools.items()} == {
            "bench": ["a", "b"],
            "bench/rag": ["a"],
        }


def test_durations_and_rates_can_be_scaled() -> None:
    scenario = parse_scenario(GOOD, "my.yaml").scaled(0.5, 3.0)
    (phase,) = scenario.phases
    assert (phase.duration_s, phase.rate, phase.last_rate) == (5.0, 6.0, 6.0)
