"""A load test from beginning to end: find or start a system, load it, compare counts, judge."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.child_system import start_child
from cluster.config import SystemConfig, load_config
from cluster.errors import ConfigError
from cluster.loadtest.arrivals import draw_arrivals
from cluster.loadtest.checks import verdicts
from cluster.loadtest.prompts import prompt_pools
from cluster.loadtest.report import Report, about
from cluster.loadtest.run import model_name, run_load
from cluster.loadtest.scenario import Scenario
from cluster.loadtest.stored import gained, stored_when_still
from cluster.loadtest.summary import summarise
from cluster.nodes.application import Note, running_redis, start_application, worker_nodes
from cluster.nodes.local_cluster import LocalCluster
from cluster.progress import Reporter


@dataclass(frozen=True, slots=True)
class Target:
    """What a load test is run against.

    Attributes:
        url: A running system; None starts one.
        api_key: Key that it wants, or None.
        redis_url: Redis of a running system, or None.
        config: Configuration file; laid over what the scenario says of the system.
        model: Target model of a system that is started, or None.
        local_nodes: How many nodes the system has besides its head; 0 for one machine's own.
    """

    url: str | None = None
    api_key: str | None = None
    redis_url: str | None = None
    config: Path | None = None
    model: str | None = None
    local_nodes: int = 0


@dataclass(frozen=True, slots=True)
class _Running:
    """A system that answers.

    Attributes:
        url: Where.
        api_key: Key that it wants, or None.
        redis_url: Its Redis, if known.
        config: Its configuration, as far as it is known.
    """

    url: str
    api_key: str | None
    redis_url: str | None
    config: SystemConfig


async def run_scenario(
    scenario: Scenario, path: Path, target: Target, seed: int, reporter: Reporter
) -> Report:
    """Run a scenario and return what was found.

    Args:
        scenario: What to run.
        path: Its file; prompts are looked for beside it.
        target: Against what.
        seed: Of the arrivals.
        reporter: Told how far it is.

    Raises:
        ClusterError: If it cannot be run.
    """
    arrivals = draw_arrivals(scenario, prompt_pools(scenario, path), seed)
    with _system(scenario, target, reporter) as running:
        model = await model_name(running.url, running.api_key)
        policy = running.config.policy
        stored = None
        if running.redis_url is not None:
            before = await stored_when_still(running.redis_url, policy, model)
        with reporter.task(f"Load for {scenario.duration_s:.0f} s") as task:
            result = await run_load(
                running.url,
                arrivals,
                api_key=running.api_key,
                timeout_s=scenario.timeout_s,
                settle_s=scenario.settle_s,
                note=task.note,
            )
        if running.redis_url is not None:
            after = await stored_when_still(running.redis_url, policy, model)
            stored = gained(before, after)
        summary = summarise(scenario, result)
        found = verdicts(scenario.checks, result, summary, stored)
        return Report(scenario, about(running.url, model, seed), result, summary, found)


@contextmanager
def _system(scenario: Scenario, target: Target, reporter: Reporter) -> Iterator[_Running]:
    """Start a system if none is named, and stop it at the end."""
    if target.url is not None:
        url, config = target.url.rstrip("/"), load_config(target.config)
        yield _Running(url, target.api_key, target.redis_url, config)
        return
    values = _system_values(scenario, target)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loadtest-")))
        redis = stack.enter_context(running_redis(folder / "counts"))
        values = {**values, "redis": {"url": redis.url}, "state_dir": str(folder / "state")}
        config = _checked(values, folder)
        with reporter.task("Starting a system") as task:
            if target.local_nodes:
                url = _start_nodes(stack, target.local_nodes, values, task.note)
            else:
                system = start_child(folder / "system", values)
                stack.callback(system.end)
                url = system.base_url
        yield _Running(url, next(iter(config.ingress.api_keys), None), redis.url, config)
        reporter.say("Stopping the system ...")


def _start_nodes(stack: ExitStack, count: int, values: Mapping[str, Any], note: Note) -> str:
    """Start a head and ``count`` nodes, the first half for Verifiers, the others for drafters."""
    cluster = stack.enter_context(LocalCluster())
    num_verifiers = (count + 1) // 2
    workers = worker_nodes(num_verifiers, count - num_verifiers)
    start_application(cluster, workers, values, note)
    return cluster.url


def _system_values(scenario: Scenario, target: Target) -> dict[str, Any]:
    """Return the configuration of the system to start: the scenario's, the file's, the option's."""
    values = dict(scenario.system)
    if target.config is not None:
        load_config(target.config)  # says what is wrong with it
        given: Any = yaml.safe_load(target.config.read_text(encoding="utf-8")) or {}
        values = merged(values, given)
    return values if target.model is None else {**values, "model": target.model}


def _checked(values: Mapping[str, Any], folder: Path) -> SystemConfig:
    path = folder / "scenario.yaml"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
    try:
        return load_config(path)
    except ConfigError as error:
        raise ConfigError(str(error).replace(f"{path}: ", "system: ")) from error


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return two configurations, the second laid over the first.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    values = dict(below)
    for key, value in above.items():
        old = values.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            values[key] = merged(old, value)
        else:
            values[key] = value
    return values
