"""Configuration of the drafters."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_MODEL_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DrafterAutoscaling(BaseModel):
    """How the number of a drafter's workers follows their load."""

    model_config = _MODEL_CONFIG

    min_replicas: int = Field(default=1, ge=0)
    """Fewest workers; 0: none while its drafts are not wanted or not of use, replies are then
    decoded without it."""
    max_replicas: int = Field(default=2, ge=1)
    """Most workers."""
    target_load: float = Field(default=0.5, gt=0, le=1)
    """Load that a worker should have: the share of its time that it drafts, or of its sessions
    that are open."""
    target_queue_ms: float = Field(default=10.0, gt=0)
    """How long calls may wait for others at a worker, on average."""
    min_useful_share: float = Field(default=0.05, ge=0, le=1)
    """Share of drafts whose first token must come; below it there are no more workers than
    ``min_replicas``."""
    look_back_s: float = Field(default=30.0, gt=10)
    """The load is averaged over so long."""
    upscale_delay_s: float = Field(default=10.0, ge=0)
    """How long the load must be too high before there are more workers."""
    downscale_delay_s: float = Field(default=300.0, ge=0)
    """How long it must be too low before there are fewer."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        """Refuse bounds that exclude each other."""
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"max_replicas must be at least min_replicas ({self.min_replicas}), "
                f"got {self.max_replicas}"
            )
        return self


class DrafterConfig(BaseModel):
    """One drafter: its method, its parameters and where it runs."""

    model_config = _MODEL_CONFIG

    method: str = "prompt_lookup"
    """File name in ``drafters/methods``."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the method; unknown ones are refused."""
    placement: Literal["worker", "in_process"] = "worker"
    """``worker``: an actor of its own; ``in_process``: inside each Verifier."""
    num_replicas: int = Field(default=1, ge=1)
    """Workers of this drafter, unless ``autoscaling`` is given."""
    autoscaling: DrafterAutoscaling | None = None
    """Have more or fewer workers as they are needed; none: always ``num_replicas``."""
    num_cpus: float = Field(default=0.2, gt=0)
    """CPUs that Ray reserves for each worker."""
    host_num_cpus: float = Field(default=0.05, gt=0)
    """CPUs that Ray reserves for each worker's host, which owns it and reports its health."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that workers and their hosts may run on."""
    deadline_ms: float = Field(default=250.0, gt=0)
    """Longest that a step waits for this drafter; a worker that needs longer is at fault. Once it
    is known how long a worker takes, steps wait for little longer than that."""
    min_deadline_ms: float = Field(default=20.0, ge=0)
    """However fast a worker lately was, a step waits for it this long, at most ``deadline_ms``."""
    max_sessions: int = Field(default=4096, ge=1)
    """Most sequences that a worker has at a time; further ones are refused while all are in use."""
    max_queued: int = Field(default=16, ge=1)
    """Most calls that wait for a worker; further ones are refused."""
    shadow_share: float = Field(default=0.0, ge=0, le=1)
    """Share of all requests that this drafter follows, drafts wanted or not, to count how often
    what it would have proposed came. Meant for drafters that look things up."""
    ping_period_s: float = Field(default=1.0, gt=0)
    """How often the host asks its worker whether it lives."""
    max_missed_pings: int = Field(default=10, ge=1)
    """Pings in a row that a worker may leave unanswered before its host replaces it."""
    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs that Ray reserves for each worker."""

    @property
    def max_workers(self) -> int:
        """Most workers there may be, of a drafter on workers."""
        return self.autoscaling.max_replicas if self.autoscaling else self.num_replicas


def default_drafters() -> dict[str, DrafterConfig]:
    """Return the drafters that are deployed when the configuration names none."""
    return {"prompt_lookup": DrafterConfig()}
