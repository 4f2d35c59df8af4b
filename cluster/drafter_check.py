"""Check, before anything is deployed, that the drafters can draft for the model that is served."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.errors import ConfigError
from drafters.api import TargetInfo
from drafters.config import DrafterConfig
from drafters.errors import DrafterError
from drafters.loading import check_config, checks_target
from models.store import ModelFolder


def needs_check(drafters: Mapping[str, DrafterConfig]) -> bool:
    """Return whether some drafter's method looks at the target model."""
    return any(checks_target(config) for config in drafters.values())


def check_drafters(drafters: Mapping[str, DrafterConfig], model: ModelFolder) -> None:
    """Have every method that can check whether it fits the model do so.

    Reads the model's configuration and tokenizer, and whatever the methods read; takes seconds.

    Raises:
        ConfigError: If a drafter does not fit, one line for each that does not.
        ModelError: If the model has no readable configuration or tokenizer.
    """
    target = _target_info(model)
    problems = []
    for name, config in drafters.items():
        if not checks_target(config):
            continue
        try:
            check_config(config, target)
        except DrafterError as error:
            problems.append(f"drafters.{name}: {error}")
    if problems:
        raise ConfigError("\n".join(problems))


def _target_info(model: ModelFolder) -> TargetInfo:
    from models.info import read_model_info  # imports transformers, which not every start needs
    from models.tokenizer import fingerprint, load_tokenizer

    path = str(model.path)
    return TargetInfo(
        model_name=model.name,
        vocab_size=read_model_info(model.name, path).vocab_size,
        tokenizer_fingerprint=fingerprint(load_tokenizer(model.name, path)),
    )
