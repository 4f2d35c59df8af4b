"""Configuration of the replicas."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

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


class MetricsConfig(BaseModel):
    """Prometheus series: which processes show them, and to whom."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    port: int = Field(default=9400, ge=0, le=65535)
    """Port on which each process shows its own series; where it is taken, the next free one of 16,
    as ``/status`` says. 0: none. ``/metrics`` of the HTTP port always shows those of all."""
    host: str = "127.0.0.1"
    """Address of that port; 0.0.0.0 lets other machines in."""
    timeout_s: float = Field(default=2.0, gt=0)
    """How long a part may take to answer; then it is left out and counted."""
    needs_key: bool = False
    """Ask for an API key on ``/metrics`` too, where ``ingress.api_keys`` are set."""
    vllm_names: bool = True
    """Show the series under vLLM's names, too."""


NO_PORT = MetricsConfig(port=0)
"""Of parts that only ``/metrics`` is to show."""


class VerifierAutoscaling(BaseModel):
    """How the number of Verifiers follows their work."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    min_replicas: int = Field(default=1)
    """Fewest Verifiers, at least 1."""
    max_replicas: int = Field(default=2, ge=1)
    """Most Verifiers."""
    ttft_target_s: float = Field(default=2.0, gt=0)
    """Seconds within which a request that comes now should have its first token."""
    reply_target_s: float = Field(default=30.0, gt=0)
    """Seconds within which the replies that a Verifier has should be complete; several times what
    one reply takes that has a Verifier to itself, which more Verifiers make no faster."""
    tolerance: float = Field(default=0.1, ge=0, lt=1)
    """Share by which the work must be more, or less, than fits the Verifiers there are."""
    look_back_s: float = Field(default=30.0, gt=10)
    """The work is averaged over so long."""
    upscale_delay_s: float = Field(default=10.0, ge=0)
    """How long there must be too much work before there are more Verifiers."""
    downscale_delay_s: float = Field(default=300.0, ge=0)
    """How long there must be too little before there are fewer."""

    @field_validator("min_replicas")
    @classmethod
    def _check_min(cls, value: int) -> int:
        """Refuse to do without Verifiers."""
        if value < 1:
            raise ValueError(
                f"min_replicas must be at least 1, because without a Verifier nothing is answered; "
                f"got {value}"
            )
        return value

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        """Refuse bounds that exclude each other."""
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"max_replicas must be at least min_replicas ({self.min_replicas}), "
                f"got {self.max_replicas}"
            )
        return self


class RoutingConfig(BaseModel):
    """Which Verifier gets a request."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    policy: Literal["prefix", "power_of_two"] = "prefix"
    """``prefix``: the one that has the beginning of the prompt cached, unless it has so many more
    requests that this outweighs it; ``power_of_two``: the less loaded of two drawn at random."""
    tokens_per_request: float = Field(default=64.0, gt=0)
    """Cached tokens that one request more on a Verifier outweighs."""
    remembered_pages: int = Field(default=100_000, ge=1)
    """Pages of prompts of which each Ingress remembers who was given them."""


class VerifierConfig(BaseModel):
    """The Verifier replicas."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    num_replicas: int = Field(default=1, ge=1)
    """Verifiers, unless ``autoscaling`` is given."""
    autoscaling: VerifierAutoscaling | None = None
    """Have more or fewer Verifiers as their work asks for; none: always ``num_replicas``."""
    routing: RoutingConfig = RoutingConfig()
    """How Verifiers are chosen."""
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

    @property
    def max_verifiers(self) -> int:
        """Most Verifiers there may be."""
        return self.autoscaling.max_replicas if self.autoscaling else self.num_replicas


class IngressConfig(BaseModel):
    """The HTTP front."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    num_replicas: int = Field(default=1, ge=1)
    """Ingress replicas."""
    num_cpus: float = Field(default=0.1, gt=0)
    """CPUs that Ray reserves for each."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that Ingresses may run on."""
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
    api_keys_file: str = ""
    """File of further keys, one a line, read when an Ingress starts; it must hold one at least."""
    strict_parameters: bool = True
    """Refuse unknown fields with 400; otherwise they are ignored with a warning header."""
    token_host: str = ""
    """Address on which each Ingress takes tokens from Verifiers; empty takes its Ray node's."""
