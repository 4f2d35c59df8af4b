"""What import-linter cannot say: the layers' rules are in pyproject.toml."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
OPEN_TO_REPLICAS = {
    "api",
    "client",
    "config",
    "decision_log",
    "errors",
    "features",
    "membership",
    "shadow",
    "step_times",
}


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "replicas").rglob("*.py")), ids=lambda path: path.stem
)
def test_replicas_reach_the_packages_below_through_their_open_modules(path: Path) -> None:
    closed = []
    for module in imported_modules(path):
        package, _, rest = module.partition(".")
        below = rest.partition(".")[0]
        if package in ("drafters", "policy_service") and below and below not in OPEN_TO_REPLICAS:
            closed.append(module)
    assert closed == []


def test_a_closed_module_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("from drafters.host import bind_host\nimport policy_service.planner\n")
    assert {"drafters.host", "policy_service.planner"} <= set(imported_modules(path))


def test_nothing_installed_imports_the_tests() -> None:
    for package in ("cluster", "replicas", "policy_service", "drafters", "models"):
        for path in (ROOT / package).rglob("*.py"):
            assert not [m for m in imported_modules(path) if m.partition(".")[0] == "tests"], path
