"""Configuration of the replicas."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from models.config import PagedModelConfig


class EngineConfig(PagedModelConfig):
    """The engine of one Verifier: how its target model runs, and the loop around it."""

    num_threads: int = Field(default=0, ge=0)
    """Threads of the target model on CPU; 0 takes the machine's cores divided by the Verifiers."""
    max_sequences: int = Field(default=32, ge=1)
    """Most sequences in one step."""
    max_step_tokens: int = Field(default=0, ge=0)
    """Most tokens in one step, longer prompts are prefilled in chunks; 0 takes 128 on CPU, 2048 on
    a GPU."""
    max_queued: int = Field(default=256, ge=0)
    """Most requests waiting; one more is answered with 429."""
    stall_s: float = Field(default=60.0, gt=0)
    """A Verifier with work whose last step is older than this is unhealthy."""


class VerifierConfig(BaseModel):
    """The Verifier replicas."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    num_replicas: int = Field(default=1, ge=1)
    """Verifiers."""
    num_cpus: float = Field(default=1.0, gt=0)
    """CPUs that Ray reserves for each."""
    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs that Ray reserves for each."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that Verifiers may run on."""
    max_ongoing_requests: int = Field(default=512, ge=1)
    """Most requests that Serve gives to one Verifier at a time."""
    engine: EngineConfig = EngineConfig()
    """Its engine."""


class IngressConfig(BaseModel):
    """The HTTP front."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    num_replicas: int = Field(default=1, ge=1)
    """Ingress replicas."""
    num_cpus: float = Field(default=0.1, gt=0)
    """CPUs that Ray reserves for each."""
    max_ongoing_requests: int = Field(default=1024, ge=1)
    """Most HTTP requests that one Ingress handles at a time."""
    max_attempts: int = Field(default=4, ge=1)
    """How often a request is given to a Verifier before it fails."""
    retry_window_s: float = Field(default=120.0, ge=0)
    """How long a request may wait for a Verifier to come back."""
    max_body_bytes: int = Field(default=4 * 2**20, ge=1024)
    """Largest HTTP body."""
    max_prompts: int = Field(default=64, ge=1)
    """Most prompts in one completions request."""
    max_choices: int = Field(default=16, ge=1)
    """Largest ``n``."""
    max_logprobs: int = Field(default=20, ge=0)
    """Most alternatives that may be asked for with each token."""
    default_max_tokens: int = Field(default=512, ge=1)
    """Reply length of a chat request that names none, bounded by the context."""
    api_keys: tuple[str, ...] = ()
    """Keys that clients must present; none given: no key is needed."""
    strict_parameters: bool = True
    """Refuse unknown fields with 400; otherwise they are ignored with a warning header."""
    token_host: str = ""
    """Address on which each Ingress takes tokens from Verifiers; empty takes its Ray node's."""
