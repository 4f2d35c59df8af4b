"""What a drafter costs on a worker of its own and inside the Verifier, eight users at a time.

One system has every method in both placements; each is pinned in turn, and its own tally in
``/status`` says what its calls took.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.workloads import Prompt
from models.store import ModelFolder
from tests.benchmarks.drafters.methods import GAMMAS, parameters
from tests.e2e.client import chat_all, openai_client
from tests.system import System, start_system

USERS = 8
GAMMA = 4
PLACEMENTS = {"worker": "worker", "inproc": "in_process"}


def placement_figures(
    folder: ModelFolder, datastore: Path, prompts: Sequence[Prompt], max_tokens: int, rounds: int
) -> dict[str, float]:
    """Measure round trips of every method, and what placing prompt lookup on a worker adds."""
    drafters = {
        f"{method}_{short}": {
            "method": method,
            "params": parameters(method, datastore, folder.path) | _threads(method),
            "placement": placement,
            "deadline_ms": 10_000,
            "min_deadline_ms": 10_000,
        }
        for method in GAMMAS
        for short, placement in PLACEMENTS.items()
    }
    config = {"model": folder.name, "drafters": drafters}
    with tempfile.TemporaryDirectory() as state:
        system = start_system(Path(state), config)
        try:
            return _measure(system, prompts[:USERS], max_tokens, rounds)
        finally:
            system.stop()


def _threads(method: str) -> dict[str, Any]:
    return {"num_threads": 1, "cache_tokens": 4096} if method == "draft_model" else {}


def _measure(
    system: System, prompts: Sequence[Prompt], max_tokens: int, rounds: int
) -> dict[str, float]:
    figures: dict[str, float] = {}
    waits: dict[str, list[float]] = {short: [] for short in PLACEMENTS}
    for _ in range(rounds):
        for short in PLACEMENTS:
            before = _verifier(system)
            _ask(system, prompts, f"prompt_lookup_{short}", max_tokens)
            after = _verifier(system)
            steps = after["steps"] - before["steps"]
            waited_s = after["draft_wait_s"] - before["draft_wait_s"]
            waits[short].append(1e3 * waited_s / steps)
            figures["step_ms_b8"] = 1e3 * (after["step_s"] - before["step_s"]) / steps
    added = sorted(w - i for w, i in zip(waits["worker"], waits["inproc"], strict=True))
    figures["overhead_worker_ms_b8"] = added[len(added) // 2]
    figures["overhead_worker_share_b8"] = figures["overhead_worker_ms_b8"] / figures["step_ms_b8"]
    for method in GAMMAS:
        for short in PLACEMENTS:
            if method != "prompt_lookup":
                _ask(system, prompts, f"{method}_{short}", min(max_tokens, 24))
            cost = _cost(system, f"{method}_{short}")
            figures[f"{method}_roundtrip_{short}_p50_ms"] = cost["round_trip_ms"]["p50_ms"]
            figures[f"{method}_roundtrip_{short}_p95_ms"] = cost["round_trip_ms"]["p95_ms"]
    return figures


def _ask(system: System, prompts: Sequence[Prompt], drafter: str, max_tokens: int) -> None:
    chat_all(
        openai_client(system.base_url),
        prompts,
        users=USERS,
        speculation={"drafter": drafter, "gamma": GAMMA},
        temperature=0,
        max_tokens=max_tokens,
    )


def _verifier(system: System) -> dict[str, Any]:
    verifier: dict[str, Any] = system.status()["verifiers"][0]
    return verifier


def _cost(system: System, name: str) -> dict[str, Any]:
    found = {one["name"]: one for one in _verifier(system)["drafters"]}
    cost: dict[str, Any] = found[name]["cost"]
    return cost
