"""Promise 1: speculation never changes the text. Through HTTP, on the default model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cluster.workloads import Prompt, read_prompts
from models.store import ModelFolder
from tests.e2e.client import Reply, chat_all, openai_client
from tests.system import System

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.model]

MAX_TOKENS = 24
MAX_SAMPLED_TOKENS = 16
USERS = 24
ARMS: dict[str, dict[str, Any]] = {
    "off": {"mode": "off"},
    "suffix": {"drafter": "suffix", "gamma": 8},
    "gamma 4": {"drafter": "prompt_lookup", "gamma": 4},
    "gamma 8": {"drafter": "prompt_lookup", "gamma": 8},
    "ucbspec": {"learner": "ucbspec"},
}


@dataclass(frozen=True)
class Expected:
    """What transformers' own greedy generation gives for a prompt."""

    text: str
    num_tokens: int


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    chosen = read_prompts()[:20]
    assert len(chosen) >= 20
    assert len({prompt.workload for prompt in chosen}) >= 4
    return chosen


@pytest.fixture(scope="module")
def greedy(prompts: list[Prompt], model_folder: ModelFolder) -> list[Expected]:
    tokenizer = AutoTokenizer.from_pretrained(model_folder.path)
    model = AutoModelForCausalLM.from_pretrained(model_folder.path, dtype=torch.float32)
    expected = []
    for prompt in prompts:
        messages = [{"role": "user", "content": prompt.turns[0]}]
        rendered: Any = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        output = model.generate(**rendered, max_new_tokens=MAX_TOKENS, do_sample=False)
        reply = output[0, rendered["input_ids"].shape[1] :].tolist()
        text = str(tokenizer.decode(reply, skip_special_tokens=True))
        expected.append(Expected(text, len(reply)))
    return expected


@pytest.mark.parametrize("arm", list(ARMS))
def test_greedy_replies_are_those_of_transformers(
    system: System, prompts: list[Prompt], greedy: list[Expected], arm: str
) -> None:
    replies = chat_all(
        openai_client(system.base_url),
        prompts,
        users=USERS,
        speculation=ARMS[arm],
        temperature=0,
        max_tokens=MAX_TOKENS,
    )
    assert [Expected(reply.text, reply.usage["completion_tokens"]) for reply in replies] == greedy


def test_seeded_samples_are_the_same_with_every_arm(system: System, prompts: list[Prompt]) -> None:
    client = openai_client(system.base_url)

    def sample(speculation: dict[str, Any]) -> list[str]:
        replies: list[Reply] = chat_all(
            client,
            prompts,
            users=USERS,
            speculation=speculation,
            temperature=1.0,
            seed=2024,
            max_tokens=MAX_SAMPLED_TOKENS,
        )
        return [reply.text for reply in replies]

    plain = sample(ARMS["off"])
    assert len(set(plain)) == len(prompts)
    for name in ARMS.keys() - {"off"}:
        assert sample(ARMS[name]) == plain, name
