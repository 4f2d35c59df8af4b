"""What is written about the code agrees with it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

import cluster
from cluster.config import SystemConfig

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("cluster", "replicas", "policy_service", "drafters", "models")


def configs_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from configs_in(field.annotation)
    for part in get_args(annotation):
        yield from configs_in(part)


def mapped_paths(readme: str) -> list[str]:
    """Return the paths that the README's package map names: lines that begin with a path."""
    found = []
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL):
        if re.match(r"(cluster|replicas|policy_service|drafters|models)/", block):
            found += map_entries(block)
    return found


def map_entries(block: str) -> list[str]:
    """Return the paths of one map; an indented name lies in the folder above it."""
    entries, folder = [], ""
    for line in block.splitlines():
        match = re.match(r"(\s*)([\w./-]+)(\s|$)", line)
        if match is None:
            continue
        indent, name, _ = match.groups()
        if not indent:
            folder = name
        entries.append(folder + name if indent else name)
    return entries


@pytest.mark.parametrize("config", sorted(set(configs_in(SystemConfig)), key=str))
def test_every_key_of_the_configuration_is_explained(config: type[BaseModel]) -> None:
    unexplained = [name for name, field in config.model_fields.items() if not field.description]
    assert unexplained == []


@pytest.mark.parametrize("config", sorted(set(configs_in(SystemConfig)), key=str))
def test_configurations_are_frozen_and_refuse_unknown_keys(config: type[BaseModel]) -> None:
    assert config.model_config.get("frozen") is True
    assert config.model_config.get("extra") == "forbid"


def test_the_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    [top, *_] = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)
    project = (ROOT / "pyproject.toml").read_text()
    [declared] = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)
    assert cluster.__version__ == declared == top


def test_the_readme_maps_what_is_there() -> None:
    mapped = mapped_paths((ROOT / "README.md").read_text())
    assert [entry for entry in mapped if not (ROOT / entry).exists()] == []
    assert {entry.rstrip("/") for entry in mapped} >= set(PACKAGES)


def test_the_lock_pins_every_requirement() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []
    locked = {normal(pin.partition("==")[0]) for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {normal(re.split(r"[\[>=<]", requirement)[0]) for requirement in wanted}
    assert names - locked == set()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
