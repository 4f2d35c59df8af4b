"""Measure every drafting method on every workload and write ``.bench/drafters.json``.

Of every prompt the greedy reply is generated once without speculation; each method is replayed
along it at each speculation length, which gives its acceptance exactly; then it decodes the prompt
again at the length that its acceptance and the measured times say is best, between two runs without
speculation. ``speedup`` is the median over prompts of its rate over the mean of those two. A method
that learns from replies has seen those of the prompts before, at the same length, and no others.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import typer

from cluster.config import default_cache_dir
from cluster.traces.generation import ReplyMaker, load_target
from cluster.traces.prompts import by_workload, first_prompts, rendered
from cluster.workloads import MIXED
from drafters.api import Drafter, NoiseKey, SessionContext
from drafters.client import DrafterClient
from drafters.config import DrafterConfig
from drafters.loading import load_drafter
from models.store import DEFAULT_MODEL, resolve_model
from models.tokenizer import load_tokenizer
from replicas.engine.step_time import warm_up
from tests.benchmarks.drafters.methods import GAMMAS, in_process, standard_library_datastore
from tests.benchmarks.drafters.placement import placement_figures
from tests.benchmarks.drafters.replay import Replayed, add, replay
from tests.benchmarks.drafters.speed import pinned, timed_reply
from tests.benchmarks.report import publish

LONG_CONTEXT = 4096
AT_MOST = {
    "prompt_lookup_draft_4k_p50_ms": 0.3,
    "suffix_draft_4k_p50_ms": 0.3,
    "overhead_worker_ms_b8": 4.0,
    "overhead_worker_share_b8": 0.10,
}


@dataclass
class Found:
    """What one method gave on one workload.

    Attributes:
        replayed: Counts by speculation length, over all prompts.
        speedups: One a prompt.
        gammas: The length chosen for each prompt.
    """

    replayed: dict[int, Replayed] = field(default_factory=dict)
    speedups: list[float] = field(default_factory=list)
    gammas: list[int] = field(default_factory=list)


class Measurement:
    """Measures prompts one by one.

    Args:
        maker: The engine with all methods.
        drafters: The same methods, to replay; one for each speculation length.
        step_ms: Time of a step of one sequence, by rows.
        max_tokens: Length of each reply.
    """

    def __init__(
        self,
        maker: ReplyMaker,
        drafters: dict[str, dict[int, Drafter]],
        step_ms: dict[int, float],
        max_tokens: int,
    ) -> None:
        self._maker = maker
        self._drafters = drafters
        self._step_ms = step_ms
        self._max_tokens = max_tokens
        self._count = 0
        self.found: dict[tuple[str, str], Found] = defaultdict(Found)

    def measure(self, prompt: Sequence[int], workload: str) -> None:
        """Measure all methods on one prompt."""
        reply, rate = timed_reply(self._maker, prompt, self._max_tokens)
        for method in self._drafters:
            found = self.found[method, workload]
            gamma = self._best_gamma(method, found, prompt, reply)
            options = pinned(method, gamma)
            same, with_drafter = timed_reply(self._maker, prompt, self._max_tokens, options)
            assert same == reply, f"{method} changed a reply"
            _, rate_after = timed_reply(self._maker, prompt, self._max_tokens)
            found.gammas.append(gamma)
            found.speedups.append(with_drafter / ((rate + rate_after) / 2))
            rate = rate_after

    def _best_gamma(
        self, method: str, found: Found, prompt: Sequence[int], reply: Sequence[int]
    ) -> int:
        worth: dict[int, float] = {}
        for gamma, drafter in self._drafters[method].items():
            self._count += 1
            one = replay(drafter, f"s{self._count}", prompt, reply, gamma)
            found.replayed[gamma] = add(found.replayed.get(gamma, Replayed()), one)
            rows = 1 + round(one.mean_drafted)
            round_ms = self._step_ms[rows] + statistics.fmean(one.draft_ms)
            worth[gamma] = (1 + one.mean_accepted) / round_ms
        return max(worth, key=lambda gamma: worth[gamma])


def one_each(config: DrafterConfig, gammas: Sequence[int]) -> dict[int, Drafter]:
    """Return a drafter for every length; one for all where it learns nothing and is large."""
    if config.method == "draft_model":
        return dict.fromkeys(gammas, load_drafter(config))
    return {gamma: load_drafter(config) for gamma in gammas}


def long_context_ms(drafter: Drafter, tokens: Sequence[int]) -> list[float]:
    """Return the times of drafts at ``LONG_CONTEXT`` tokens and a little more."""
    context = list(tokens)[:LONG_CONTEXT]
    drafter.open("long", SessionContext(tuple(context), len(context), NoiseKey(0, 0, 0.0)))
    times = []
    for token in list(tokens)[LONG_CONTEXT : LONG_CONTEXT + 200]:
        started = time.perf_counter()
        drafter.propose([("long", 16)])
        times.append((time.perf_counter() - started) * 1e3)
        drafter.extend("long", [token])
    drafter.close("long")
    return times


def figures_of(measurement: Measurement) -> dict[str, float]:
    """Return the flat figures of all methods and workloads, and print a table of them."""
    figures: dict[str, float] = {}
    print(f"\n{'method':15s}{'workload':12s}{'gamma':>6s}{'accepted':>9s}{'speedup':>8s}  by depth")
    for (method, workload), found in sorted(measurement.found.items()):
        gamma = statistics.mode(found.gammas)
        best = found.replayed[gamma]
        pairs = zip(best.accepted_by_depth, best.offered_by_depth, strict=True)
        by_depth = [accepted / offered for accepted, offered in pairs]
        name = f"{method}_{workload}"
        figures[f"{name}_mean_accepted"] = best.mean_accepted
        figures[f"{name}_speedup"] = statistics.median(found.speedups)
        figures[f"{name}_best_gamma"] = gamma
        for depth, share in enumerate(by_depth[:8], start=1):
            figures[f"{name}_acceptance_d{depth}"] = share
        depths = " ".join(f"{share:.2f}" for share in by_depth[:8])
        print(
            f"{method:15s}{workload:12s}{gamma:6d}{best.mean_accepted:9.2f}"
            f"{figures[f'{name}_speedup']:8.2f}  {depths}"
        )
    return figures


def draft_times(measurement: Measurement) -> dict[str, float]:
    """Return each method's own time for a draft."""
    figures = {}
    for method in GAMMAS:
        times = [
            ms
            for (name, _), found in measurement.found.items()
            if name == method
            for replayed in found.replayed.values()
            for ms in replayed.draft_ms
        ]
        figures[f"{method}_draft_p50_ms"] = statistics.median(times)
        figures[f"{method}_draft_p95_ms"] = statistics.quantiles(times, n=20)[-1]
    return figures


def is_time(figure: str) -> bool:
    """Return whether a figure is of times and not of one workload."""
    return figure.endswith(("_ms", "_b8"))


def main(
    workloads: Annotated[
        Path, typer.Option(help="A file of prompts, or a folder of such files.")
    ] = MIXED,
    prompts: Annotated[int, typer.Option(help="Prompts of each workload.")] = 2,
    max_tokens: Annotated[int, typer.Option(help="Tokens of each reply.")] = 200,
    rounds: Annotated[int, typer.Option(help="Rounds over both placements.")] = 3,
    placement: Annotated[bool, typer.Option(help="Measure placements; starts a system.")] = True,
    model: Annotated[str, typer.Option(help="Target model.")] = DEFAULT_MODEL,
) -> None:
    """Measure and write ``.bench/drafters.json``."""
    torch.set_num_threads(os.cpu_count() or 1)
    folder = resolve_model(model, default_cache_dir())
    tokenizer = load_tokenizer(folder.name, str(folder.path))
    asked = first_prompts(workloads, prompts, by_workload)
    with tempfile.TemporaryDirectory() as scratch:
        datastore = standard_library_datastore(Path(scratch) / "stdlib.rest", tokenizer)
        configs = {method: in_process(method, datastore, folder.path) for method in GAMMAS}
        target = load_target(folder.path)
        step_time = warm_up(target)
        step_ms = {rows: step_time.predict_ms(rows) for rows in range(1, 66)}
        clients = DrafterClient(configs, vocab_size=target.vocab_size)
        maker = ReplyMaker(target, step_time, clients)
        drafters = {method: one_each(config, GAMMAS[method]) for method, config in configs.items()}
        measurement = Measurement(maker, drafters, step_ms, max_tokens)
        tokens: list[int] = []
        for number, prompt in enumerate(asked, start=1):
            print(f"{number} of {len(asked)}: {prompt.id} ({prompt.workload})", flush=True)
            asked_for = rendered(tokenizer, prompt).token_ids
            tokens += asked_for
            measurement.measure(asked_for, prompt.workload)
        figures = figures_of(measurement) | draft_times(measurement)
        source = tokenizer.encode(Path(typer.__file__).with_name("core.py").read_text()) * 2
        for method in ("prompt_lookup", "suffix"):
            times = long_context_ms(load_drafter(configs[method]), source)
            figures[f"{method}_draft_4k_p50_ms"] = statistics.median(times)
        maker.close()
        del target, maker, clients, drafters, measurement
        if placement:
            figures |= placement_figures(folder, datastore, asked, 64, rounds)
    about = f"{folder.name}, float32, greedy, {max_tokens} tokens; {len(asked)} prompts"
    # The others are in the table above.
    publish("drafters", about, figures, at_most=AT_MOST, is_shown=is_time)


if __name__ == "__main__":
    typer.run(main)
