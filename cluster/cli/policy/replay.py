"""``banditserve policy replay``: what another learner would have earned, by a decision log."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from policy_service.api import RewardKind
from policy_service.errors import DecisionLogError, PolicyConfigError

if TYPE_CHECKING:
    from policy_service.decision_log.records import LoggedReply
    from policy_service.off_policy.bootstrap import Estimate, Interval
    from policy_service.off_policy.evaluation import Evaluation

_PIPE_WIDTH = 120
_NAMES = {"replay": "replay", "snips": "SNIPS", "doubly_robust": "doubly robust"}


def replay(
    log: Annotated[
        list[Path],
        typer.Argument(metavar="LOG...", help="Decision logs: files, or folders of them."),
    ],
    learner: Annotated[
        str, typer.Option(metavar="NAME", help="The learner to judge; one of those of a request.")
    ],
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A parameter of the learner; may be given several times.",
            show_default="none",
        ),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="What it is paid for: tokens or time.",
            show_default="what the log's learner was paid for",
        ),
    ] = None,
    prior_strength: Annotated[
        float,
        typer.Option(
            metavar="PULLS",
            min=0,
            help="Most pulls that a reply's priors are worth, from the replies before it; 0: none.",
        ),
    ] = 20.0,
    resamples: Annotated[
        int, typer.Option(metavar="N", min=100, max=100_000, help="Resamples for the intervals.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures, as JSON.")] = False,
) -> None:
    """Estimate what a learner would have earned on the traffic of a decision log.

    Three estimates with 95 % intervals, of tokens a round and of tokens a second, and what to doubt
    about them. Nothing is served.
    """
    from policy_service.decision_log.reader import read_log  # slow to import, as are the next
    from policy_service.loading import load_learner
    from policy_service.off_policy.doubts import doubts, usable
    from policy_service.off_policy.evaluation import ReplayOptions, evaluate

    judged = load_learner(learner, params := _params(param or []))
    found = read_log(log)
    replies, notes = usable(found.replies)
    if not replies:
        raise DecisionLogError("no reply of the log had a choice to make, from its first round on")
    _check_arm(params, replies)
    kind = _kind(reward, replies)
    evaluation = evaluate(
        replies, judged, ReplayOptions(kind, prior_strength, 20.0, resamples, seed)
    )
    log_learners = sorted({one.decision.learner for reply in replies for one in reply.rounds})
    facts = {
        "learner": learner,
        "params": params,
        "reward": kind,
        "log_learners": log_learners,
        "notes": [*found.notes, *notes],
        "doubts": doubts(evaluation.support, log_learners),
    }
    if as_json:
        print(json.dumps(_json({**facts, **asdict(evaluation)}), indent=2))
    else:
        _print(facts, evaluation)


def _params(given: list[str]) -> dict[str, Any]:
    """Return parameters; their values are read as in the configuration file."""
    params = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise PolicyConfigError(f"expected --param NAME=VALUE, found {text!r}")
        try:
            params[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise PolicyConfigError(f"the value of {name!r} cannot be read: {value!r}") from error
    return params


def _check_arm(params: Mapping[str, Any], replies: list[LoggedReply]) -> None:
    """Refuse to judge an arm that the log never had."""
    from policy_service.naming import unknown

    arm = params.get("arm")
    known = {str(arm) for reply in replies for one in reply.rounds for arm in one.allowed}
    if arm is not None and arm not in known:
        raise PolicyConfigError(unknown("arm", arm, known))


def _kind(given: str | None, replies: list[LoggedReply]) -> RewardKind:
    if given is not None and given not in ("tokens", "time"):
        raise PolicyConfigError(f"expected --reward tokens or time, found {given!r}")
    kind: RewardKind = replies[-1].header.reward
    if given is not None:
        kind = "tokens" if given == "tokens" else "time"
    return kind


def _print(facts: Mapping[str, Any], evaluation: Evaluation) -> None:
    support = evaluation.support
    table = Table(
        title=f"{facts['learner']}, by a log of {', '.join(facts['log_learners'])}",
        title_justify="left",
    )
    table.add_column("")
    for heading in ("tokens a round", "tokens a second", "over the log"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("the log as it was", *_cells(evaluation.log))
    for name, estimate in evaluation.estimates.items():
        table.add_row(_NAMES[name], *_cells(estimate))
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)
    print(
        f"{support.requests} requests, {support.replies} replies, {support.rounds} rounds; "
        f"{support.told_share:.0%} of them tell the learner's choice, worth "
        f"{support.effective_rounds:.0f} rounds of {support.effective_requests:.0f} requests. "
        f"The learner learnt from {support.own_rounds:.1f} of {support.logged_rounds:.1f} rounds "
        "of a reply."
    )
    for note in facts["notes"]:
        print(f"note: {note}")
    for doubt in facts["doubts"]:
        print(f"warning: {doubt}")


def _cells(estimate: Estimate) -> list[str]:
    return [
        _cell(estimate.tokens_per_round, 3),
        _cell(estimate.tokens_per_second, 1),
        _cell(estimate.gain, 3),
    ]


def _cell(interval: Interval, digits: int) -> str:
    if not math.isfinite(interval.value):
        return "nothing to go by"
    low, high = interval.low, interval.high
    return f"{interval.value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _json(value: Any) -> Any:
    """Return values as JSON knows them: nothing where there is no number."""
    if isinstance(value, Mapping):
        return {name: _json(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
