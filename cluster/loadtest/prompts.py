"""Which prompts a scenario draws from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cluster.errors import ScenarioError
from cluster.loadtest.scenario import Scenario
from cluster.workloads import FOLDER, Prompt, read_prompts

Pools = Mapping[str, Sequence[Prompt]]
"""Prompts by the name under which a mix calls for them."""


def prompt_pools(scenario: Scenario, scenario_path: Path) -> Pools:
    """Return the prompts of every workload that a scenario mixes.

    Raises:
        ScenarioError: If prompts cannot be read, or there are none for a workload.
    """
    source = FOLDER
    if scenario.prompts is not None:
        source = scenario_path.parent / Path(scenario.prompts).expanduser()
    prompts = _read(source)
    pools = {name: _of(name, prompts) for name in scenario.workloads}
    for name, pool in pools.items():
        if not pool:
            raise ScenarioError(
                f"{scenario_path}: no prompts of workload {name!r} in {source}; "
                f"there are {', '.join(_names(prompts))}"
            )
    return pools


def _read(source: Path) -> list[Prompt]:
    files = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
    try:
        prompts = [prompt for file in files for prompt in read_prompts(file)]
    except (OSError, ValueError) as error:
        raise ScenarioError(f"cannot read the prompts in {source}: {error}") from error
    if not prompts:
        raise ScenarioError(f"no prompts in {source}: expected .jsonl files there")
    return prompts


def _of(name: str, prompts: Iterable[Prompt]) -> list[Prompt]:
    workload, _, category = name.partition("/")
    return [
        prompt
        for prompt in prompts
        if prompt.workload == workload and category in ("", prompt.category)
    ]


def _names(prompts: Iterable[Prompt]) -> list[str]:
    return sorted({prompt.workload for prompt in prompts})
