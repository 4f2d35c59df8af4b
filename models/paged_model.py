"""The target model: loads it, checks that it can be served, runs one packed forward.

Decoder-only models of transformers whose layers are full or sliding attention are served; others
are refused by name, and a self-check at start compares a packed forward with the plain one, so that
a model that the paged attention would get wrong is refused too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from models.attention import PagedAttention
from models.batch import PackedBatch
from models.config import PagedModelConfig
from models.errors import ModelError
from models.kv_cache import KVCache, bytes_per_token
from models.lean_decoder import LeanDecoder, is_lean_possible
from models.linears import pack_linears
from models.memory import free_bytes
from models.rotary import fix_longrope
from models.self_check import SelfCheck
from models.transformers_decoder import TransformersDecoder

logger = logging.getLogger(__name__)

_SERVED_LAYERS = {"full_attention", "sliding_attention"}


class PagedModel:
    """A causal language model with a paged cache.

    Args:
        path: Folder with ``config.json`` and safetensors.
        config: Engine configuration.

    Raises:
        ModelError: If the folder holds no causal language model, or one that is not served, or if
            there is too little memory for its cache.
    """

    def __init__(self, path: Path | str, config: PagedModelConfig) -> None:
        self.device = _device(config)
        self.dtype = _dtype(config, self.device)
        model_config = _load_config(path)
        _check_layers(model_config)
        _check_exact_numerics(config, self.device, self.dtype)
        attention = PagedAttention(config.exact_numerics)
        model = _load_model(path, model_config, self.dtype, attention.name).to(self.device)
        text_config = model_config.get_text_config()
        self.vocab_size: int = text_config.vocab_size
        self.max_context = _max_context(text_config, config)
        self.eos_token_ids = _eos_token_ids(model)
        fix_longrope(model, self.max_context)
        check = SelfCheck(model, attention)
        shapes = check.layer_shapes()
        hidden_size = text_config.hidden_size if config.keep_hidden_states else 0
        self._token_bytes = bytes_per_token(shapes, self.dtype, hidden_size)
        self.page_tokens = config.page_tokens
        self.num_pages = self._num_pages(config)
        self.cache = KVCache(
            shapes, self.num_pages, config.page_tokens, self.dtype, self.device, hidden_size
        )
        self._decoder = _decoder(model, attention, config, check, self.cache)
        if config.exact_numerics:
            check.exactness_of(self.forward)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Compute one step and write its keys and values to the cache.

        Returns:
            Logits of the rows of ``batch.logit_rows()``, ``[num_logit_rows, vocab_size]``, float32.
        """
        return self._decoder.forward(batch, self.cache).float()

    def hidden_states(self, slots: Sequence[int]) -> Tensor:
        """Return the last hidden states, after the final norm, of cached tokens.

        Args:
            slots: Where the tokens are in the cache.

        Returns:
            ``[num_slots, hidden_size]``, in the model's number format.

        Raises:
            ModelError: If ``keep_hidden_states`` is off.
        """
        if self.cache.hidden is None:
            raise ModelError("hidden states are not kept: set keep_hidden_states")
        return self.cache.hidden[torch.tensor(slots, dtype=torch.long, device=self.device)]

    @property
    def is_lean(self) -> bool:
        """Whether the forward is our own and not transformers'."""
        return isinstance(self._decoder, LeanDecoder)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the whole cache."""
        return self.num_pages * self.page_tokens * self._token_bytes

    def _num_pages(self, config: PagedModelConfig) -> int:
        num_tokens = config.cache_tokens
        if not num_tokens:
            free = free_bytes(self.device)
            budget = min(int(free * config.cache_memory_share), config.max_cache_bytes)
            num_tokens = budget // self._token_bytes
            if num_tokens < self.max_context:
                logger.warning(
                    "the cache holds %d tokens, less than the context of %d",
                    num_tokens,
                    self.max_context,
                )
        if num_tokens < 2 * config.page_tokens:
            raise ModelError(
                f"the cache would hold {num_tokens} tokens; it needs at least "
                f"{2 * config.page_tokens}: free memory or raise cache_tokens"
            )
        return num_tokens // config.page_tokens


def _decoder(
    model: Any,
    attention: PagedAttention,
    config: PagedModelConfig,
    check: SelfCheck,
    cache: KVCache,
) -> LeanDecoder | TransformersDecoder:
    """Return the lean decoder if there is one for the model and it agrees, else transformers'."""
    packed = (
        config.packed_linears
        and cache.keys[0].device.type == "cpu"
        and cache.keys[0].dtype == torch.float32
    )
    if config.lean and is_lean_possible(model.config):
        lean = LeanDecoder(model, packed, config.exact_numerics)
        error = check.error_of(lambda batch: lean.forward(batch, cache))
        if error <= check.tolerance:
            return lean
        logger.warning("the lean decoder is off by %.2g of the largest logit: not used", error)
    if packed:
        pack_linears(model)
    return TransformersDecoder(model, attention)


def _check_exact_numerics(
    config: PagedModelConfig, device: torch.device, dtype: torch.dtype
) -> None:
    if config.exact_numerics and (device.type != "cpu" or dtype != torch.float32):
        raise ModelError(f"exact_numerics needs float32 on cpu, got {dtype} on {device}")


def _device(config: PagedModelConfig) -> torch.device:
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelError("device is cuda, but torch finds no GPU")
    return torch.device(config.device)


def _dtype(config: PagedModelConfig, device: torch.device) -> torch.dtype:
    if config.dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    dtype: torch.dtype = getattr(torch, config.dtype)
    return dtype


def _load_config(path: Path | str) -> Any:
    try:
        return AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{Path(path).name} holds no model configuration: {error}") from error


def _check_layers(config: Any) -> None:
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ()) - _SERVED_LAYERS
    if kinds:
        raise ModelError(
            f"{config.model_type} has layers of type {', '.join(sorted(kinds))}; "
            f"served are {', '.join(sorted(_SERVED_LAYERS))}"
        )
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type") == "dynamic":
        raise ModelError(
            f"{config.model_type} has dynamic rotary embeddings, whose frequencies depend on the "
            "longest sequence of a step; this is not served"
        )


def _load_model(path: Path | str, config: Any, dtype: torch.dtype, attention: str) -> Any:
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=dtype, attn_implementation=attention
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"{Path(path).name} ({config.model_type}) is not a causal language model that "
            f"transformers can load: {error}"
        ) from error
    return model.requires_grad_(False).train(False)


def _max_context(text_config: Any, config: PagedModelConfig) -> int:
    own = int(getattr(text_config, "max_position_embeddings", 0) or 0)
    if own and config.max_context > own:
        raise ModelError(f"max_context is {config.max_context}, the model's limit is {own}")
    limit = config.max_context or own
    if not limit:
        raise ModelError("the model names no longest context; set max_context")
    return limit


def _eos_token_ids(model: Any) -> frozenset[int]:
    eos = model.generation_config.eos_token_id
    if eos is None:
        eos = model.config.get_text_config().eos_token_id
    if eos is None:
        return frozenset()
    return frozenset(eos if isinstance(eos, list) else [eos])
