"""What a draft model's folder says of it, without its weights being loaded.

A draft is token ids, so the draft model must have the target's tokenizer. Its embedding may have
more rows than the tokenizer has tokens (models are padded to round sizes), and another number of
them than the target's: such ids are never drafted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafters.api import TargetInfo
from drafters.errors import DrafterConfigError
from models.errors import ModelError
from models.info import read_model_info
from models.store import resolve_model
from models.tokenizer import fingerprint, load_tokenizer


@dataclass(frozen=True, slots=True)
class DraftModelFolder:
    """A draft model on this machine.

    Attributes:
        path: Folder of config, weights and tokenizer.
        name: The model's name.
        digest: Short hash of its configuration and of its weights' names and sizes.
        num_tokens: Token ids that are smaller may be drafted.
        tokenizer_fingerprint: As ``models.tokenizer`` takes it.
    """

    path: Path
    name: str
    digest: str
    num_tokens: int
    tokenizer_fingerprint: str

    def check_tokenizer(self, target: TargetInfo) -> None:
        """Check that the model has the target's tokenizer.

        Raises:
            DrafterConfigError: If not.
        """
        if self.tokenizer_fingerprint != target.tokenizer_fingerprint:
            raise DrafterConfigError(
                f"draft_model: {self.name} cannot draft for {target.model_name}: expected the "
                f"tokenizer of {target.model_name} (fingerprint {target.tokenizer_fingerprint}, "
                f"{target.vocab_size} ids), found another (fingerprint "
                f"{self.tokenizer_fingerprint}, {self.num_tokens} ids)"
            )


def read_folder(model: Any, cache_dir: Any, max_context: int = 0) -> DraftModelFolder:
    """Find a draft model, fetching it where it is named and not there yet, and read its facts.

    Args:
        model: An absolute folder, or a name as ``models.store`` knows it.
        cache_dir: Absolute folder of the store; needed for a name.
        max_context: Context length where the model names none; 0 if it does.

    Raises:
        DrafterConfigError: If there is no such model or something in its folder cannot be read.
    """
    _check_place(model, cache_dir)
    try:
        found = resolve_model(model, Path(cache_dir).expanduser())
        vocab_size = read_model_info(found.name, str(found.path), max_context).vocab_size
        tokenizer = load_tokenizer(found.name, str(found.path))
    except ModelError as error:
        raise DrafterConfigError(f"draft_model: {error}") from error
    return DraftModelFolder(
        found.path,
        found.name,
        _digest(found.path),
        min(vocab_size, max(tokenizer.get_vocab().values()) + 1),
        fingerprint(tokenizer),
    )


def _check_place(model: Any, cache_dir: Any) -> None:
    if not isinstance(model, str) or not isinstance(cache_dir, str):
        raise DrafterConfigError(
            f"draft_model: model and cache_dir are text, got {model!r} and {cache_dir!r}"
        )
    if _is_absolute(model):
        return
    if model.startswith(".") or Path(model).is_dir():
        raise DrafterConfigError(
            "draft_model: model is an absolute folder, as workers run in other folders, or a "
            f"name; got {model!r}"
        )
    if not _is_absolute(cache_dir):
        raise DrafterConfigError(
            f"draft_model: model {model!r} is a name, for which cache_dir is the absolute folder "
            f"to keep it in; got {cache_dir!r}"
        )


def _is_absolute(path: str) -> bool:
    return Path(path).expanduser().is_absolute()


def _digest(folder: Path) -> str:
    """Hash what tells one model from another without reading all of its weights."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"\0{path.name}\0{path.stat().st_size}".encode())
    return digest.hexdigest()[:16]
