"""The RayService against KubeRay's own definition, where that is at hand.

``KUBERAY_CRDS`` names a folder with KubeRay's CustomResourceDefinitions, ``CRD_VALIDATOR`` a Python
program that takes ``--crds FOLDER MANIFEST...`` and prints a line for each fault, which begins with
``MANIFEST#``. Without them ``checks/custom_kinds.py`` has to do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.k8s.chart import CASES, rendered
from tests.k8s.faults import Fault
from tests.k8s.test_manifests import BUILTIN_FAULTS, CUSTOM_FAULTS

_CRDS, _VALIDATOR = os.environ.get("KUBERAY_CRDS"), os.environ.get("CRD_VALIDATOR")

pytestmark = [
    pytest.mark.skipif(
        not (_CRDS and _VALIDATOR), reason="KUBERAY_CRDS and CRD_VALIDATOR name no definitions"
    ),
    pytest.mark.skipif(find_spec("celpy") is None, reason="the package cel-python is not there"),
]

RAY_FAULTS = [
    fault
    for fault in (*BUILTIN_FAULTS, *CUSTOM_FAULTS)
    if fault.what
    in {
        *("unknown field of a pod", "a port that is a word", "a probe without an action's command"),
        *("unknown field of the RayService", "unknown field of a group"),
        "start parameter that is no string",
    }
]


def _name(fault: Fault) -> str:
    return f"fault-{fault.what.replace(' ', '-')}"


@pytest.fixture(scope="module")
def faults_found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """All cases and faults in one run, which has to read a megabyte of definitions first."""
    assert _CRDS is not None
    assert _VALIDATOR is not None
    folder = tmp_path_factory.mktemp("manifests")
    bodies = {case: rendered(case) for case in CASES}
    for fault in RAY_FAULTS:
        bodies[_name(fault)] = rendered("everything")
        fault.change(bodies[_name(fault)])
    paths = [folder / f"{name}.yaml" for name in bodies]
    for path, manifests in zip(paths, bodies.values(), strict=True):
        path.write_text(yaml.dump_all(manifests, Dumper=yaml.CSafeDumper))
    done = subprocess.run(
        [sys.executable, _VALIDATOR, "--crds", _CRDS, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    return {
        path.stem: [line for line in lines if Path(line.partition("#")[0]) == path]
        for path in paths
    }


@pytest.mark.parametrize("case", CASES)
def test_kuberay_takes_what_is_rendered(faults_found: dict[str, list[str]], case: str) -> None:
    assert faults_found[case] == []


@pytest.mark.parametrize("fault", RAY_FAULTS, ids=str)
def test_kuberay_refuses_a_planted_fault(faults_found: dict[str, list[str]], fault: Fault) -> None:
    assert faults_found[_name(fault)]
