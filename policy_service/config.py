"""Configuration of the policy service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from policy_service.api import RewardKind
from policy_service.decision_log.lines import TenantNames


class DecisionLogConfig(BaseModel):
    """What is kept of rounds, to explain them and to judge other learners by them."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    recent_rounds: int = Field(default=10_000, ge=0)
    """Rounds that each Verifier holds in memory, so that recent requests can be explained."""
    folder: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())] | None = None
    """Folder that each Verifier writes rounds to, on its own node; none: nothing is written."""
    share: float = Field(default=0.1, ge=0, le=1)
    """Share of requests whose rounds are written, all rounds of a request or none."""
    max_bytes: int = Field(default=16 * 2**20, ge=2**16)
    """Largest size of a file."""
    max_files: int = Field(default=8, ge=1)
    """Most files in the folder; the oldest that nobody writes any more are deleted."""
    tenants: TenantNames = "hash"
    """What is written of a tenant: a hash of the name, or nothing."""


class PolicyConfig(BaseModel):
    """Which arms there are, which learner chooses, and how counts are pooled."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    learner: str = "goodput"
    """File name in ``policy_service/learners``."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the learner; unknown ones are refused."""
    reward: RewardKind = "time"
    """What the learner is paid for: ``tokens`` of a round, as in the paper, or those tokens times
    the share of the round's time that plain decoding would have taken."""
    gammas: tuple[int, ...] = (2, 4, 8)
    """Speculation lengths; every drafter with each of them is an arm, and so is ``none``."""
    max_gamma: int = Field(default=16, ge=1, le=64)
    """Largest speculation length that a request may pin."""
    max_contexts: int = Field(default=256, ge=1)
    """Most contexts to keep counts for; the rest fall to their parent."""
    max_contexts_per_tenant: int = Field(default=64, ge=1)
    """Most contexts of one tenant; its further requests count for the tenant as a whole."""
    max_tenant_share: float = Field(default=0.25, gt=0, le=1)
    """Most that one tenant weighs in what all share, as a share of the pulls of an arm."""
    prior_strength: float = Field(default=20.0, ge=0)
    """Most pulls that a pooled prior is worth to a new prompt, per arm."""
    shrinkage: float = Field(default=20.0, ge=0)
    """Pulls of the parent context that a context's own counts are mixed with."""
    epoch_s: int = Field(default=600, ge=1)
    """Length of an epoch bucket of counters."""
    half_life_s: float = Field(default=6 * 3600.0, gt=0)
    """Age at which a count weighs half."""
    retention_s: int = Field(default=3 * 24 * 3600, ge=60)
    """Age at which an epoch bucket expires."""
    sync_period_s: float = Field(default=0.2, gt=0)
    """How often a replica sends its counts."""
    sync_timeout_s: float = Field(default=2.0, gt=0)
    """How long a replica waits for the Policy's answer."""
    publish_period_s: float = Field(default=0.5, gt=0)
    """How often the Policy makes a new snapshot when counts have changed."""
    ack_retention_s: float = Field(default=60.0, ge=0)
    """How long a replica keeps acknowledged batches, to send them again after a failover."""
    max_unsent_cells: int = Field(default=20_000, ge=1)
    """Most cells a replica buffers while the Policy is away."""
    max_store_bytes: int = Field(default=64 * 2**20, ge=2**20)
    """Most bytes of counters in Redis; above, the oldest epochs lose their fine contexts, then
    go."""
    key_prefix: str = "banditserve"
    """First part of every key in Redis."""
    num_cpus: float = Field(default=0.1, gt=0)
    """CPUs that Ray reserves for the Policy."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that the Policy may run on."""
    decision_log: DecisionLogConfig = DecisionLogConfig()
    """What is kept of rounds."""

    @model_validator(mode="after")
    def _check_gammas(self) -> Self:
        """Refuse speculation lengths that no arm can have."""
        if any(not 1 <= gamma <= self.max_gamma for gamma in self.gammas):
            raise ValueError(f"gammas must lie in 1..{self.max_gamma} (max_gamma): {self.gammas}")
        if len(set(self.gammas)) != len(self.gammas):
            raise ValueError(f"gammas must differ from each other: {self.gammas}")
        return self
