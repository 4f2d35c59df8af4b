"""Tokens per second through HTTP, with speculation against without, at 1 and 8 users.

Starts a system, with the default configuration if none is given, and asks the shipped prompts,
greedy. Every group of prompts is asked with speculation off and on, one right after the other and
the order swapped from group to group, so that a machine whose speed drifts harms both alike. Quoted
are medians over the groups; the speedup is the median of each group's own ratio.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
import yaml

from cluster.workloads import MIXED, Prompt, read_prompts
from models.store import DEFAULT_MODEL
from tests.benchmarks.report import publish
from tests.e2e.client import chat_all, openai_client
from tests.system import start_system

MODES = {"off": {"mode": "off"}, "on": {"mode": "auto"}}


@dataclass
class Measured:
    """Tokens per second of each group, by mode."""

    off: list[float] = field(default_factory=list)
    on: list[float] = field(default_factory=list)

    @property
    def speedup(self) -> float:
        """Median of the groups' ratios, on over off."""
        return statistics.median(on / off for on, off in zip(self.on, self.off, strict=True))


def tokens_per_second(
    base_url: str, group: Sequence[Prompt], users: int, mode: str, max_tokens: int
) -> float:
    """Ask a group of prompts, ``users`` at a time, and return the rate of reply tokens."""
    started = time.perf_counter()
    replies = chat_all(
        openai_client(base_url),
        group,
        users=users,
        speculation=MODES[mode],
        stream=True,
        temperature=0,
        max_tokens=max_tokens,
    )
    tokens = sum(int(reply.usage["completion_tokens"]) for reply in replies)
    return tokens / (time.perf_counter() - started)


def measure(
    base_url: str, prompts: Sequence[Prompt], users: int, size: int, max_tokens: int
) -> Measured:
    """Measure all groups of ``size`` prompts at ``users`` users."""
    measured = Measured()
    for number, start in enumerate(range(0, len(prompts) - size + 1, size)):
        group = prompts[start : start + size]
        # The first to ask would pay for the prompt's keys and values, which the other then reuses.
        tokens_per_second(base_url, group, users, "off", 1)
        order = ["off", "on"] if number % 2 == 0 else ["on", "off"]
        rates = {
            mode: tokens_per_second(base_url, group, users, mode, max_tokens) for mode in order
        }
        measured.off.append(rates["off"])
        measured.on.append(rates["on"])
        print(
            f"  {users} users, group {number + 1}: off {rates['off']:.1f}, on {rates['on']:.1f} "
            f"tokens/s, ratio {rates['on'] / rates['off']:.2f}",
            flush=True,
        )
    return measured


def main(
    max_tokens: Annotated[int, typer.Option(help="Longest reply, in tokens.")] = 64,
    workload: Annotated[Path, typer.Option(help="Prompts, one JSON object a line.")] = MIXED,
    model: Annotated[str, typer.Option(help="Target model.")] = DEFAULT_MODEL,
    config: Annotated[
        Path | None, typer.Option(help="Configuration to measure, YAML; the default one if none.")
    ] = None,
) -> None:
    """Measure and write ``.bench/serve.json``."""
    prompts = read_prompts(workload)
    # Every third prompt first, so that groups are mixed.
    prompts = [*prompts[::3], *prompts[1::3], *prompts[2::3]]
    settings = yaml.safe_load(config.read_text()) if config else {}
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        system = start_system(Path(folder), {"model": model, **settings})
        try:
            # What a server has learnt after a while: one pass over the prompts.
            tokens_per_second(system.base_url, prompts, 8, "on", max_tokens // 2)
            half = prompts[: len(prompts) // 2]  # one user takes eight times as long
            for users, size, asked in ((1, 2, half), (8, 8, prompts)):
                measured = measure(system.base_url, asked, users, size, max_tokens)
                figures[f"tokens_per_s_off_u{users}"] = statistics.median(measured.off)
                figures[f"tokens_per_s_on_u{users}"] = statistics.median(measured.on)
                figures[f"speedup_u{users}"] = measured.speedup
        finally:
            system.stop()
    about = f"{len(prompts)} prompts, greedy, at most {max_tokens} tokens; medians"
    publish("serve", about, figures)


if __name__ == "__main__":
    typer.run(main)
