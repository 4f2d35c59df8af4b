"""Configuration of the drafters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class DrafterConfig(BaseModel):
    """One drafter: its method, its parameters and where it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    method: str = "prompt_lookup"
    """File name in ``drafters/methods``."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the method; unknown ones are refused."""
    placement: Literal["worker", "in_process"] = "worker"
    """``worker``: an actor of its own; ``in_process``: inside each Verifier."""
    num_replicas: int = Field(default=1, ge=1)
    """Workers of this drafter."""
    num_cpus: float = Field(default=0.2, gt=0)
    """CPUs that Ray reserves for each worker."""
    host_num_cpus: float = Field(default=0.05, gt=0)
    """CPUs that Ray reserves for each worker's host, which owns it and reports its health."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that workers may run on."""
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


def default_drafters() -> dict[str, DrafterConfig]:
    """Return the drafters that are deployed when the configuration names none."""
    return {"prompt_lookup": DrafterConfig()}
