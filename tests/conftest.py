"""What all tests share: the default model, and running systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from cluster.config import default_cache_dir
from cluster.redis_server import free_port
from models.store import DEFAULT_MODEL, ModelFolder, resolve_model
from tests.system import System, start_system

# A shared machine may stand still for a moment: no deadlines. The same examples on every run.
hypothesis.settings.register_profile("banditserve", deadline=None, derandomize=True)
hypothesis.settings.load_profile("banditserve")

StartSystem = Callable[..., System]


@pytest.fixture(scope="session")
def model_folder() -> ModelFolder:
    """The default model, fetched into the user's cache once per machine."""
    return resolve_model(DEFAULT_MODEL, default_cache_dir())


@pytest.fixture(scope="session")
def start(
    model_folder: ModelFolder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartSystem]:
    """Start a system of one's own: ``start(config, options)``; ended after the tests at latest."""
    systems: list[System] = []

    def start_one(
        config: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        folder: Path | None = None,
    ) -> System:
        folder = folder or tmp_path_factory.mktemp("system")
        # Ports of its own, so that systems side by side do not run out of them.
        defaults = {"model": str(model_folder.name), "metrics": {"port": free_port()}}
        system = start_system(folder, {**defaults, **(config or {})}, options)
        systems.append(system)
        return system

    yield start_one
    for system in systems:
        system.close()


@pytest.fixture(scope="session")
def system(start: StartSystem) -> Iterator[System]:
    """One system for all tests, with two drafters and else the defaults; do not harm it."""
    running = start({"drafters": {"prompt_lookup": {}, "suffix": {"method": "suffix"}}})
    yield running
    running.stop()
