"""The images: one Python, one Ray, no root, and what probes and hooks run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.k8s.chart import CASES, ROOT, pod_templates, rendered

DOCKERFILE = ROOT / "k8s" / "Dockerfile"


def stages() -> dict[str, list[str]]:
    """Return the instructions of each stage, continued lines joined, comments left out."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    name = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("FROM "):
            name = line.split()[-1]
            found[name] = [line]
        elif name:
            found[name].append(line)
    return found


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_both_images_come_from_one_base_and_one_lock(target: str) -> None:
    stage, build = stages()[target], stages()[f"build-{target}"]
    assert stage[0] == f"FROM base AS {target}"
    assert build[0] == f"FROM build AS build-{target}"
    assert "--constraint requirements.lock ." in build[-1]
    assert "COPY --from=build-" + target + " /opt/venv /opt/venv" in stage
    assert "USER 1000:1000" in stage


def test_the_base_has_what_probes_and_hooks_run() -> None:
    (install,) = (line for line in stages()["base"] if "apt-get install" in line)
    commands = set()
    for case in CASES:
        for name, pod in pod_templates(rendered(case)):
            if "RayService" in name:
                container = pod["spec"]["containers"][0]
                probe = container["readinessProbe"]["exec"]["command"]
                commands |= {probe[0], *re.findall(r"wget|curl|nc ", probe[2])}
    assert commands == {"bash", "wget"}
    assert commands <= set(install.split())


def test_all_code_and_nothing_else_is_sent_to_the_build() -> None:
    kept = re.findall(r"^!(\S+)$", (ROOT / "k8s/Dockerfile.dockerignore").read_text(), re.MULTILINE)
    copied = [line.split()[1:-1] for line in stages()["build"] if line.startswith("COPY ")]
    assert sorted(kept) == sorted(name for names in copied for name in names)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "scripts"}
    assert packages <= set(kept)
