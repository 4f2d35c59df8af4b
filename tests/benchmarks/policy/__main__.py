"""Let learners and rules play recorded replies and write ``.bench/policy.json``.

A trace has, for every position of every reply, what each drafter would have proposed, so any choice
of arms can be replayed exactly; time is that of the machine's step-time table and of the recorded
drafts. Every learner and rule is tuned by a small grid on one half of the prompts and measured on
the other, at several batch sizes; the planner is the one of a live Verifier. Intervals are of 95 %,
by a paired bootstrap over prompts.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated

import typer

from cluster.traces.files import read_trace
from cluster.traces.making import RecordingOptions
from cluster.workloads import FOLDER
from models.store import DEFAULT_MODEL
from tests.benchmarks.policy.bootstrap import Ratio
from tests.benchmarks.policy.contest import OURS, RIVALS, UNPOOLED, Contest, Results
from tests.benchmarks.policy.merging import merging_figures
from tests.benchmarks.policy.planning_speed import planning_figures
from tests.benchmarks.policy.recorded import recorded
from tests.benchmarks.policy.stage import Stage, rate
from tests.benchmarks.report import publish

AT_MOST = {"plan_64_ms": 1.0, "observe_64_ms": 0.5, "snapshot_p99_s": 1.0}
NAMED = ("ucbspec", "exp3spec", "hedge", "match_length", "batch_table", "best_fixed", "none")
"""What ours should be ahead of."""


def show(size: int, results: Results) -> None:
    """Print how all policies did at one batch size."""
    print(f"\nbatch {size:<4d}{'tokens/s':>14s}{'over none':>10s}   goodput over it, 95 %")
    plain = rate(results.played["none"])
    for name in (*RIVALS, UNPOOLED, OURS):
        speed = rate(results.played[name])
        row = f"  {name:17s}{speed:9.1f}{speed / plain:10.3f}"
        if name != OURS:
            ratio = results.over(name)
            row += f"   {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        chosen = " | ".join(dict.fromkeys(results.chosen.get(name, [])))
        print(f"{row:62s}  {chosen}")


def figures_of(contests: dict[int, Results]) -> dict[str, float]:
    """Return the flat figures of all batch sizes."""
    figures: dict[str, float] = {}

    def add(name: str, ratio: Ratio) -> None:
        figures[name] = ratio.value
        figures[f"{name}_low"], figures[f"{name}_high"] = ratio.low, ratio.high

    for size, results in contests.items():
        for rival in RIVALS:
            add(f"goodput_over_{rival}_b{size}", results.over(rival))
        add(f"pool_gain_first32_b{size}", results.early_gain())
    return figures


def goals(sizes: tuple[int, ...]) -> dict[str, float]:
    """Return what the figures should at least be."""
    named = {f"goodput_over_{name}_b{size}_low": 1.0 for size in sizes for name in NAMED}
    hindsight = {f"goodput_over_hindsight_b{size}": 1.0 for size in sizes}
    pool = {f"pool_gain_first32_b{size}": 1.05 for size in sizes}
    return {"merged_per_s": 50_000.0} | named | hindsight | pool


def main(
    trace: Annotated[
        Path | None, typer.Option(help="A trace, as `banditserve policy record` writes it.")
    ] = None,
    workloads: Annotated[
        Path, typer.Option(help="Without a trace: a file of prompts, or a folder of such files.")
    ] = FOLDER,
    prompts: Annotated[int, typer.Option(help="Prompts of each category.")] = 4,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of a reply.")] = 200,
    model: Annotated[str, typer.Option(help="Target model.")] = DEFAULT_MODEL,
    requests: Annotated[
        int, typer.Option(help="Fewest requests measured of each half and batch size.")
    ] = 48,
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "1,8,32,128",
    gammas: Annotated[str, typer.Option(help="Speculation lengths that are arms.")] = "2,4,8",
    seed: Annotated[int, typer.Option(help="Of orders and draws.")] = 0,
    merging: Annotated[bool, typer.Option(help="Measure the Policy over a real Redis.")] = True,
) -> None:
    """Measure and write ``.bench/policy.json``."""
    options = RecordingOptions(max_tokens=max_tokens)
    played = read_trace(trace) if trace else recorded(workloads, prompts, model, options)
    sizes = tuple(int(size) for size in batches.split(","))
    stage = Stage(played, tuple(int(gamma) for gamma in gammas.split(",")), seed)
    figures = planning_figures(stage)
    if merging:
        figures |= merging_figures(stage)
    contests = Contest(stage, sizes, requests, lambda text: print(text, flush=True)).run()
    for size, results in contests.items():
        show(size, results)
    figures |= figures_of(contests)
    length = statistics.fmean(request.num_tokens for request in played.requests)
    about = (
        f"{played.model} on {played.machine}; {len(played.requests)} prompts, {length:.0f} tokens "
        f"a reply; arms {', '.join(map(str, stage.arms))}; seed {seed}"
    )
    at_least = goals(sizes)
    shown = {*AT_MOST, *at_least, "merged_cells_per_batch", "snapshot_p50_s"}
    publish("policy", about, figures, at_least, AT_MOST, lambda figure: figure in shown)


if __name__ == "__main__":
    typer.run(main)
