from __future__ import annotations

import pytest

from cluster.config import SystemConfig
from cluster.resources import num_cpus_needed
from drafters.config import DrafterConfig
from replicas.config import VerifierConfig


def test_every_replica_counts() -> None:
    one = num_cpus_needed(SystemConfig())
    two = num_cpus_needed(SystemConfig(verifier=VerifierConfig(num_replicas=2)))
    assert two - one == pytest.approx(1.0)


def test_a_drafter_in_the_verifiers_process_reserves_nothing() -> None:
    inside = SystemConfig(drafters={"a": DrafterConfig(placement="in_process")})
    assert num_cpus_needed(inside) == num_cpus_needed(SystemConfig(drafters={}))
