"""Configuration of a model that runs with a paged cache."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class PagedModelConfig(BaseModel):
    """Where a model runs, how, and how large its cache is."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; ``auto`` takes a GPU if there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of weights and cache; ``auto`` is float32 on CPU and bfloat16 on a GPU."""
    lean: bool = True
    """Run Llama, Mistral, Qwen2 and Qwen3 through our own decoder."""
    packed_linears: bool = True
    """Pack the linears' weights for oneDNN on CPU in float32, where torch has the operator."""
    exact_numerics: bool = False
    """Compute every row's logits bit for bit alike whatever else is in its step; slower. Only in
    float32 on CPU; a model that cannot be computed so is refused."""
    keep_hidden_states: bool = False
    """Keep the last hidden state of every cached token, for drafters that work from them."""
    page_tokens: int = Field(default=16, ge=1)
    """Tokens in a page of the cache."""
    cache_tokens: int = Field(default=0, ge=0)
    """Tokens the cache holds; 0 sizes it from free memory and ``cache_memory_share``."""
    cache_memory_share: float = Field(default=0.2, gt=0, le=0.95)
    """Share of free memory that the cache may take where its size is not given."""
    max_cache_bytes: int = Field(default=4 * 2**30, gt=0)
    """Most bytes the cache takes where its size is not given."""
    max_context: int = Field(default=0, ge=0)
    """Longest prompt and reply together; 0 takes the model's own limit."""
