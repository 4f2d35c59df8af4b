"""The one configuration of a running system, composed of the packages' own.

Read from a YAML file and from command line options; nothing else in the system reads either. Only
where things lie and a secret may come from the environment (``BANDITSERVE_CACHE``,
``XDG_STATE_HOME``, ``BANDITSERVE_REDIS_PASSWORD``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from cluster.config_errors import describe
from cluster.errors import ConfigError
from drafters.config import DrafterConfig, default_drafters
from drafters.loading import check_config
from models.store import DEFAULT_MODEL
from policy_service.config import PolicyConfig
from policy_service.options import check_config as check_policy
from policy_service.redis_pool.address import split_credentials
from policy_service.redis_pool.config import RedisConfig
from replicas.config import IngressConfig, MetricsConfig, VerifierConfig

_MODEL_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def default_cache_dir() -> Path:
    """Return ``BANDITSERVE_CACHE`` or ``~/.cache/banditserve``."""
    return Path(os.environ.get("BANDITSERVE_CACHE") or "~/.cache/banditserve").expanduser()


def default_state_dir() -> Path:
    """Return the folder ``banditserve`` in ``XDG_STATE_HOME`` or ``~/.local/state``."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "banditserve"


Folder = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class RayConfig(BaseModel):
    """The Ray that runs the processes."""

    model_config = _MODEL_CONFIG

    address: str | None = None
    """Ray to join, such as ``auto`` or ``host:6379``; none: a private one, on loopback only."""
    num_cpus: float | None = Field(default=None, gt=0)
    """CPUs that a private Ray believes it has; none: the machine's, or as many as are needed."""
    object_store_bytes: int = Field(default=200_000_000, ge=80_000_000)
    """Shared memory of a private Ray; tokens and drafts are small."""


class SystemConfig(BaseModel):
    """Everything that a running system is made from."""

    model_config = _MODEL_CONFIG

    model: str = DEFAULT_MODEL
    """``smollm2``, a name on the Hugging Face hub, or a local folder."""
    host: str = "127.0.0.1"
    """Address that HTTP listens on; 0.0.0.0 lets other machines in."""
    port: int = Field(default=8000, ge=1, le=65535)
    """Port that HTTP listens on."""
    cache_dir: Folder = Field(default_factory=default_cache_dir)
    """Where fetched models are kept; ``BANDITSERVE_CACHE`` sets the default."""
    state_dir: Folder = Field(default_factory=default_state_dir)
    """Where a private Redis keeps what was learnt, and where logs go."""
    ready_timeout_s: float = Field(default=600.0, gt=0)
    """How long ``serve`` waits until the system can answer."""
    drain_timeout_s: float = Field(default=10.0, ge=0)
    """How long requests under way may go on when the system stops."""
    ray: RayConfig = RayConfig()
    """The Ray to use."""
    redis: RedisConfig = RedisConfig()
    """The Redis to use."""
    ingress: IngressConfig = IngressConfig()
    """The HTTP front."""
    verifier: VerifierConfig = VerifierConfig()
    """The replicas that hold the target model."""
    drafters: dict[str, DrafterConfig] = Field(default_factory=default_drafters)
    """Drafters by the name that arms, requests and statistics use."""
    policy: PolicyConfig = PolicyConfig()
    """Arms, learner and pooling of counts."""
    metrics: MetricsConfig = MetricsConfig()
    """Prometheus series."""

    @model_validator(mode="before")
    @classmethod
    def _take_password(cls, values: Any) -> Any:
        """Take the password of Redis from the environment, where none is given otherwise."""
        password = os.environ.get("BANDITSERVE_REDIS_PASSWORD")
        redis = values.get("redis") if isinstance(values, dict) else None
        if not password or not isinstance(redis, dict) or not isinstance(redis.get("url"), str):
            return values
        given = (
            redis.get("password"),
            redis.get("password_file"),
            split_credentials(redis["url"])[2],
        )
        if any(secret is not None for secret in given):
            return values
        return {**values, "redis": {**redis, "password": password}}

    @model_validator(mode="after")
    def _check_drafters(self) -> Self:
        """Refuse drafters that cannot be, and names that an arm could not carry."""
        for name, drafter in self.drafters.items():
            if not name.isidentifier() or name == "none":
                raise ValueError(f"drafters.{name}: a drafter's name is an identifier, not 'none'")
            try:
                check_config(drafter)
            except ValueError as error:
                raise ValueError(f"drafters.{name}: {error}") from error
        return self

    @model_validator(mode="after")
    def _check_learner(self) -> Self:
        """Refuse an unknown learner, and parameters that are unknown or name unknown drafters."""
        try:
            check_policy(self.policy, self.drafters)
        except ValueError as error:
            raise ValueError(f"policy: {error}") from error
        return self


def load_config(
    path: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> SystemConfig:
    """Return the configuration of a YAML file, with options of the command line laid over it.

    Args:
        path: The file; None starts from the defaults.
        overrides: Values by dotted path, such as ``{"ray.address": "auto"}``; None values are
            options that were not given.

    Raises:
        ConfigError: If the file cannot be read or a key or value is wrong, one line for each fault.
    """
    values = _read(path) if path else {}
    for dotted, value in (overrides or {}).items():
        if value is not None:
            _lay_over(values, dotted, value)
    try:
        return SystemConfig.model_validate(values)
    except ValidationError as error:
        where = f"{path}: " if path else ""
        lines = (where + line for line in describe(error, SystemConfig))
        raise ConfigError("\n".join(lines)) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not YAML: {reason}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected keys and values, found {type(values).__name__}")
    return values


def _lay_over(values: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        below = values.setdefault(parent, {})
        if not isinstance(below, dict):
            return  # what the file has there is refused with the rest of it
        values = below
    values[last] = value
