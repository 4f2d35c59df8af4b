"""What the Ingress must know of the target model without loading it."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import AutoConfig

from models.errors import ModelError

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about the target model.

    Attributes:
        name: The name that clients use.
        context_length: Most tokens of prompt and reply together.
        vocab_size: Token ids are smaller.
    """

    name: str
    context_length: int
    vocab_size: int


def read_model_info(name: str, model_dir: str, max_context: int = 0) -> ModelInfo:
    """Read a model's folder.

    Args:
        name: The name that clients use.
        model_dir: Folder with ``config.json``.
        max_context: Shorter context to keep to; 0 takes the model's own.

    Raises:
        ModelError: If the folder has no readable configuration, or it says no context length.
    """
    try:
        config = AutoConfig.from_pretrained(model_dir, local_files_only=True).get_text_config()
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"model {name} has no readable configuration: {error}") from error
    lengths = (getattr(config, key, None) for key in _CONTEXT_KEYS)
    known = [value for value in (*lengths, max_context) if isinstance(value, int) and value > 0]
    if not known:
        raise ModelError(
            f"expected one of {', '.join(_CONTEXT_KEYS)} in {name}'s configuration; "
            "set max_context where it has none"
        )
    return ModelInfo(name, min(known), int(config.vocab_size))
