"""What prefix routing gains over two random choices, with two Verifiers, through HTTP.

Two systems are up at the same time, alike but for the routing, and take turns: users talk to one of
them while the other is idle, then have the same conversations with the other. Each conversation
begins with a text of some length and goes on with short questions; a user has several and goes from
one to the next, so that a Verifier's cache has room for its share of them but not for all. Quoted
are, of all turns but the first, the time to the first token and the share of prompt tokens found
cached, and the median over the rounds of the ratio of median times.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from openai import OpenAI

from cluster.workloads import read_prompts
from models.store import DEFAULT_MODEL
from tests.benchmarks.report import publish
from tests.e2e.client import MODEL, openai_client
from tests.system import start_system

POLICIES = ("prefix", "power_of_two")
REPLY_TOKENS = 8
MAX_TURNS = 8


@dataclass
class Turns:
    """What later turns of conversations took.

    Attributes:
        ttft_s: Time to the first token, of each turn.
        num_prompt: Their prompt tokens.
        num_cached: Of those, the tokens that were found cached.
    """

    ttft_s: list[float] = field(default_factory=list)
    num_prompt: int = 0
    num_cached: int = 0

    def add(self, other: Turns) -> None:
        """Count other turns, too."""
        self.ttft_s += other.ttft_s
        self.num_prompt += other.num_prompt
        self.num_cached += other.num_cached


@dataclass
class Conversation:
    """One conversation so far.

    Attributes:
        messages: What was said.
        texts: What the user says, the last turn first.
    """

    messages: list[Any]
    texts: list[str]

    def ask(self, client: OpenAI) -> Turns:
        """Take the next turn; the first one is not counted."""
        is_first = len(self.messages) == 1
        self.messages.append({"role": "user", "content": self.texts.pop()})
        turns, started, reply = Turns(), time.perf_counter(), ""
        for chunk in client.chat.completions.create(
            model=MODEL,
            messages=self.messages,
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=REPLY_TOKENS,
            temperature=0,
            extra_body={"ignore_eos": True},
        ):
            for choice in chunk.choices:
                if choice.delta.content and not turns.ttft_s:
                    turns.ttft_s.append(time.perf_counter() - started)
                reply += choice.delta.content or ""
            if chunk.usage:
                turns.num_prompt += chunk.usage.prompt_tokens
                details = chunk.usage.prompt_tokens_details
                turns.num_cached += (details.cached_tokens or 0) if details else 0
        self.messages.append({"role": "assistant", "content": reply})
        return Turns() if is_first else turns


def hold(base_url: str, conversations: Sequence[Sequence[Conversation]], num_turns: int) -> Turns:
    """Have every user take a turn in each of their conversations, again and again."""
    client = openai_client(base_url)

    def one(of_user: Sequence[Conversation]) -> Turns:
        turns = Turns()
        for _ in range(num_turns):
            for conversation in of_user:
                turns.add(conversation.ask(client))
        return turns

    turns = Turns()
    with ThreadPoolExecutor(len(conversations)) as pool:
        for found in pool.map(one, conversations):
            turns.add(found)
    return turns


def conversations(name: str, users: int, each: int, num_chars: int) -> list[list[Conversation]]:
    """Return new conversations, ``each`` for every user; ``name`` sets them apart from others."""
    questions = [prompt.turns[0] for prompt in read_prompts() if len(prompt.turns[0]) < 120]
    text = "\n".join(prompt.turns[0] for prompt in read_prompts())

    def begin(number: int) -> Conversation:
        system = {"role": "system", "content": f"{name}-{number}: you answer in few words."}
        start = number * num_chars % (len(text) - num_chars)
        later = [questions[(number + turn) % len(questions)] for turn in range(MAX_TURNS)]
        return Conversation([system], [*later, text[start : start + num_chars]])

    return [[begin(user * each + index) for index in range(each)] for user in range(users)]


def main(
    rounds: Annotated[int, typer.Option(help="Rounds with each routing.")] = 3,
    users: Annotated[int, typer.Option(help="Users at a time.")] = 3,
    each: Annotated[int, typer.Option(help="Conversations of each user.")] = 3,
    num_turns: Annotated[int, typer.Option(help="Turns in each.", max=MAX_TURNS)] = 3,
    num_chars: Annotated[int, typer.Option(help="Length of the text it begins with.")] = 1200,
    cache_tokens: Annotated[int, typer.Option(help="Cache of each Verifier.")] = 2560,
    model: Annotated[str, typer.Option(help="Target model.")] = DEFAULT_MODEL,
) -> None:
    """Measure and write ``.bench/routing.json``."""
    measured = {policy: Turns() for policy in POLICIES}
    ratios = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        urls = {}
        for policy in POLICIES:
            config = system_config(model, policy, cache_tokens)
            system = start_system(Path(folder) / policy, config)
            stack.callback(system.stop)
            urls[policy] = system.base_url
            print(f"  {policy}: up", flush=True)
        for policy in POLICIES:
            hold(urls[policy], conversations("first", 2, 1, 100), 1)  # first steps are slower
        for number in range(rounds):
            order = POLICIES if number % 2 == 0 else POLICIES[::-1]
            medians = {}
            for policy in order:
                talks = conversations(str(number), users, each, num_chars)
                found = hold(urls[policy], talks, num_turns)
                measured[policy].add(found)
                medians[policy] = statistics.median(found.ttft_s)
            ratios.append(medians["power_of_two"] / medians["prefix"])
            print(f"  round {number + 1}: {medians}", flush=True)
    about = f"{rounds} rounds, {users} users with {each} conversations, 2 Verifiers; later turns"
    publish("routing", about, figures(measured, ratios))


def system_config(model: str, policy: str, cache_tokens: int) -> dict[str, Any]:
    """Return the configuration of a system with two Verifiers, without drafters."""
    return {
        "model": model,
        "drafters": {},
        "verifier": {
            "num_replicas": 2,
            "num_cpus": 0.5,
            "routing": {"policy": policy},
            "engine": {"num_threads": 1, "cache_tokens": cache_tokens},
        },
    }


def figures(measured: dict[str, Turns], ratios: Sequence[float]) -> dict[str, float]:
    """Return what is published."""
    found = {}
    for policy, turns in measured.items():
        found[f"ttft_p50_ms_{policy}"] = 1e3 * statistics.median(turns.ttft_s)
        found[f"ttft_mean_ms_{policy}"] = 1e3 * statistics.mean(turns.ttft_s)
        found[f"cached_share_{policy}"] = turns.num_cached / turns.num_prompt
    return {**found, "ttft_gain": statistics.median(ratios)}


if __name__ == "__main__":
    typer.run(main)
