"""Convert a GGUF to a folder of safetensors: ``python -m models.conversion GGUF OUT``.

A process of its own, because it takes several times the model's memory and prints as it likes.
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write the model in ``gguf`` to ``folder`` in float16, with tokenizer and chat template.

    Checkpoints have 16 bits a weight, and so has this one again: what a GGUF's quantised values
    stand for, rounded by at most one part in 2,048. That is far less than quantising them took.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # What came from a quantised file refuses to be saved, so its numbers go into a plain model.
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    model = type(loaded)(loaded.config)
    model.load_state_dict(loaded.state_dict())
    torch.nn.Module.half(model)
    model.generation_config = loaded.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
