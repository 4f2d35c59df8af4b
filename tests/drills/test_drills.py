"""Every drill, as ``banditserve drill`` does it: each harms a system of several nodes here."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from cluster.drills.catalogue import by_layout, drill, names
from cluster.drills.conduct import Stages, conduct
from cluster.drills.small_model import save_small_model
from cluster.progress import Reporter

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.redis]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    """The system that drills share, until one leaves it broken."""
    model = save_small_model(tmp_path_factory.mktemp("model"))
    with Stages(model, Reporter(io.StringIO())) as stages:
        yield stages


@pytest.mark.parametrize("name", by_layout(names()))
def test_drill(name: str, stages: Stages) -> None:
    output = io.StringIO()
    outcome = conduct(name, drill(name), stages, Reporter(output))
    print(output.getvalue())
    assert outcome.passed, output.getvalue()
