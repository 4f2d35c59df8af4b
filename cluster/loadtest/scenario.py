"""A load test as a file: phases of load, what requests look like, and what must hold afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from cluster.config_errors import describe
from cluster.errors import ScenarioError
from cluster.loadtest.yaml_lines import line_of

_MODEL_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

SHIPPED = Path(__file__).parent.parent / "scenarios"
"""Scenarios that come with the project."""


class RequestSettings(BaseModel):
    """What a request asks for, besides its prompt."""

    model_config = _MODEL_CONFIG

    max_tokens: int = Field(default=64, ge=1)
    """Longest reply, in tokens."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Of the sampling; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Smallest set of tokens to sample from whose probability reaches this."""
    ignore_eos: bool = False
    """Go on to ``max_tokens`` whatever the model says."""
    speculation: dict[str, Any] = Field(default_factory=dict)
    """What each request says about speculation, such as ``{mode: "off"}``."""


class Phase(BaseModel):
    """A stretch of load of one kind."""

    model_config = _MODEL_CONFIG

    name: str
    """Shown in the report."""
    duration_s: float = Field(gt=0)
    """How long it lasts."""
    rate: float = Field(ge=0)
    """Requests a second, on average, at its start."""
    end_rate: float | None = Field(default=None, ge=0)
    """The same at its end, changing evenly; none: the same throughout."""
    mix: dict[str, float] = Field(min_length=1)
    """Weight of each workload, by name, or by name and category as in ``spec_bench/rag``."""
    request: RequestSettings | None = None
    """What its requests ask for; none: as the scenario says."""

    @property
    def last_rate(self) -> float:
        """Requests a second at its end."""
        return self.rate if self.end_rate is None else self.end_rate

    @model_validator(mode="after")
    def _check_mix(self) -> Self:
        """Refuse weights from which nothing can be drawn."""
        if min(self.mix.values()) < 0 or sum(self.mix.values()) <= 0:
            raise ValueError(f"mix: weights must be 0 or more, and one above 0, found {self.mix}")
        return self


class Slo(BaseModel):
    """What a user is content with: only tokens of such replies count as goodput."""

    model_config = _MODEL_CONFIG

    ttft_ms: float = Field(default=5000.0, gt=0)
    """Longest wait for the first token."""
    itl_ms: float = Field(default=500.0, gt=0)
    """Longest mean time between tokens of one reply."""


class Checks(BaseModel):
    """What must hold for the load test to pass."""

    model_config = _MODEL_CONFIG

    max_failed: int = Field(default=0, ge=0)
    """Most requests that may fail."""
    scale_up: bool = False
    """More Verifiers must have been seen than there were at first."""
    scale_down: bool = False
    """Fewer Verifiers must have been seen after the most of them."""
    arms_follow_mix: bool = False
    """Workloads whose drafts are accepted more must be given longer drafts, and phases likewise."""
    counts_add_up: bool = False
    """Redis must have gained exactly the rounds that replies tell of, for every arm."""


class Scenario(BaseModel):
    """A whole load test."""

    model_config = _MODEL_CONFIG

    name: str
    """Names the report."""
    description: str = ""
    """What it is for."""
    seed: int = 0
    """Arrivals, prompts and seeds of requests follow from it."""
    prompts: str | None = None
    """File or folder of prompts (.jsonl), relative to the scenario; none: those shipped."""
    request: RequestSettings = RequestSettings()
    """What requests ask for."""
    timeout_s: float = Field(default=180.0, gt=0)
    """After how long without an end a request has failed."""
    slo: Slo = Slo()
    """What counts as goodput."""
    phases: tuple[Phase, ...]
    """Phases, one after the other."""
    settle_s: float = Field(default=0.0, ge=0)
    """How long to watch the system after the last reply, for it to scale down."""
    checks: Checks = Checks()
    """What must hold."""
    system: dict[str, Any] = Field(default_factory=dict)
    """Configuration of a system that is started for the load test."""

    @field_validator("phases")
    @classmethod
    def _check_phases(cls, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        """Refuse a scenario without load."""
        if not phases:
            raise ValueError("expected at least one phase")
        return phases

    @property
    def duration_s(self) -> float:
        """How long requests keep coming."""
        return sum(phase.duration_s for phase in self.phases)

    @property
    def workloads(self) -> tuple[str, ...]:
        """Workloads of all phases, in the order they first occur."""
        return tuple(dict.fromkeys(name for phase in self.phases for name in phase.mix))

    def with_prompts(self, prompts: Path | None) -> Scenario:
        """Return the scenario with prompts from elsewhere, or as it is if None."""
        if prompts is None:
            return self
        return self.model_copy(update={"prompts": str(prompts.expanduser().absolute())})

    def scaled(self, time_factor: float, rate_factor: float) -> Scenario:
        """Return the scenario with all durations and rates multiplied."""
        phases = tuple(
            phase.model_copy(
                update={
                    "duration_s": phase.duration_s * time_factor,
                    "rate": phase.rate * rate_factor,
                    "end_rate": phase.last_rate * rate_factor,
                }
            )
            for phase in self.phases
        )
        return self.model_copy(update={"phases": phases})


def load_scenario(name: str) -> tuple[Scenario, Path]:
    """Return a shipped scenario by its name, or the one in a file, and where it was found.

    Raises:
        ScenarioError: If there is none, or it is wrong: file, line, key and what was expected.
    """
    path = SHIPPED / f"{name}.yaml"
    if not path.is_file():
        path = Path(name).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        shipped = ", ".join(sorted(found.stem for found in SHIPPED.glob("*.yaml")))
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ScenarioError(
            f"cannot read the scenario {name}: {reason}; shipped are {shipped}"
        ) from error
    return parse_scenario(text, str(path)), path


def parse_scenario(text: str, where: str) -> Scenario:
    """Return the scenario of a YAML text.

    Raises:
        ScenarioError: If it is wrong, one line for each fault.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ScenarioError(f"{where}{line}: not YAML: {reason}") from error
    if not isinstance(values, dict):
        raise ScenarioError(f"{where}: expected keys and values, found {type(values).__name__}")
    try:
        return Scenario.model_validate(values)
    except ValidationError as error:
        faults = zip(error.errors(), describe(error, Scenario), strict=True)
        lines = [f"{where}, line {line_of(text, fault['loc'])}: {said}" for fault, said in faults]
        raise ScenarioError("\n".join(lines)) from error
