"""Which prompts are recorded or measured, and what the model is given for one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from cluster.errors import TraceError
from cluster.workloads import Prompt, read_prompts
from models.tokenizer import Tokenizer
from replicas.ingress.prompts import Prompt as ModelPrompt
from replicas.ingress.prompts import chat_prompt
from replicas.ingress.schema import Message


def by_workload(prompt: Prompt) -> tuple[str, ...]:
    """Return what a prompt is one of: its workload."""
    return (prompt.workload,)


def by_category(prompt: Prompt) -> tuple[str, ...]:
    """Return what a prompt is one of: a category of its workload."""
    return prompt.workload, prompt.category


def first_prompts(
    path: Path, count: int, group: Callable[[Prompt], tuple[str, ...]] = by_category
) -> list[Prompt]:
    """Return the first prompts of each group in a file, or in all files of a folder.

    Args:
        path: A file of prompts or a folder of such files (``.jsonl``).
        count: Most prompts of a group.
        group: Says which group a prompt belongs to.

    Raises:
        TraceError: If a file cannot be read, or there is no prompt.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    groups: dict[tuple[str, ...], list[Prompt]] = defaultdict(list)
    try:
        for prompt in (prompt for file in files for prompt in read_prompts(file)):
            groups[group(prompt)].append(prompt)
    except (OSError, ValueError) as error:
        raise TraceError(f"cannot read the prompts in {path}: {error}") from error
    if not groups:
        raise TraceError(f"no prompts in {path}: expected a .jsonl file or a folder of such files")
    return [prompt for prompts in groups.values() for prompt in prompts[:count]]


def rendered(tokenizer: Tokenizer, prompt: Prompt) -> ModelPrompt:
    """Return a prompt's first turn as the chat API would give it to the model."""
    return chat_prompt(tokenizer, [Message(role="user", content=prompt.turns[0])])
