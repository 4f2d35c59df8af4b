"""How much a configuration reserves; pure."""

from __future__ import annotations

from cluster.config import SystemConfig


def num_cpus_needed(config: SystemConfig) -> float:
    """Return the CPUs that all actors of a configuration reserve together.

    >>> num_cpus_needed(SystemConfig())
    1.45
    """
    drafters = sum(
        drafter.max_workers * (drafter.num_cpus + drafter.host_num_cpus)
        for drafter in config.drafters.values()
        if drafter.placement == "worker"
    )
    replicas = config.verifier.max_verifiers * config.verifier.num_cpus
    fronts = config.ingress.num_replicas * config.ingress.num_cpus
    return round(drafters + replicas + fronts + config.policy.num_cpus, 6)
