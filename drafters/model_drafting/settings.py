"""Parameters of a draft model, checked without loading it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from drafters.parameters import check_choice, check_whole
from models.config import PagedModelConfig

Shape = Literal["chain", "tree"]

_NAME = "draft_model"
_DEVICES = ("auto", "cpu", "cuda")
_DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModelSettings:
    """Parameters as ``drafters.methods.draft_model`` documents them.

    Raises:
        DrafterConfigError: If a value cannot be.
    """

    model: str
    cache_dir: str
    shape: Shape
    max_tokens: int
    top_k: int
    beam: int
    depth: int
    max_step_tokens: int
    num_threads: int
    device: str
    dtype: str
    cache_tokens: int
    max_context: int

    def __post_init__(self) -> None:
        check_choice(_NAME, "shape", self.shape, get_args(Shape))
        check_choice(_NAME, "device", self.device, _DEVICES)
        check_choice(_NAME, "dtype", self.dtype, _DTYPES)
        for name in ("max_tokens", "top_k", "beam", "depth", "max_step_tokens", "num_threads"):
            check_whole(_NAME, name, getattr(self, name), 1)
        for name in ("cache_tokens", "max_context"):
            check_whole(_NAME, name, getattr(self, name), 0)

    @property
    def paged_model(self) -> PagedModelConfig:
        """How the model runs."""
        return PagedModelConfig.model_validate(
            {
                "device": self.device,
                "dtype": self.dtype,
                "cache_tokens": self.cache_tokens,
                "max_context": self.max_context,
            }
        )

    def proposals_key(self) -> str:
        """Return the parameters on which proposals depend, as text."""
        names = ["shape", "max_tokens", "dtype", "max_context", "max_step_tokens"]
        if self.shape == "tree":
            names += ["top_k", "beam", "depth"]
        return ",".join(f"{name}={getattr(self, name)}" for name in names)
