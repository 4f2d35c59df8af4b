"""The format of decision logs: one line a round, with all that explains it or judges others by it.

A log is a file of JSON lines. The first is a header with the version of the format; every other one
is a round, complete in itself, so that any part of a log can be read. No text of a prompt or reply
is in it, and no token id. This module does no I/O.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args

from policy_service.api import Arm, Decision, Outcome, RequestFeatures, RewardKind
from policy_service.decision_log.records import LogHeader, RoundRecord, finite_estimates
from policy_service.errors import DecisionLogError

VERSION = 1
"""Changes whenever a line's meaning does; a reader refuses any other than its own."""

_MARK = "banditserve_decision_log"
_FEATURES = tuple(entry.name for entry in fields(RequestFeatures))
_OUTCOME = tuple(entry.name for entry in fields(Outcome))
_T = TypeVar("_T")

TenantNames = Literal["hash", "omit"]
"""What a log holds of a tenant: a short hash of the name, or nothing."""


def header_line(header: LogHeader) -> str:
    """Return the first line of a file, with its end."""
    return _line({_MARK: VERSION, **asdict(header)})


def record_line(record: RoundRecord, tenants: TenantNames) -> str:
    """Return a round's line, with its end."""
    decision, features = record.decision, _values(record.features, _FEATURES)
    features["tenant"] = _tenant(record.features.tenant, tenants)
    return _line(
        {
            "request": record.request_id,
            "sequence": record.sequence,
            "choice": record.choice,
            "round": record.index,
            "position": record.position,
            "time": round(record.time, 3),
            "features": features,
            "allowed": [str(arm) for arm in record.allowed],
            "decision": {
                "arm": str(decision.arm),
                "learner": decision.learner,
                "reason": decision.reason,
                "propensity": float(decision.propensity),
                "snapshot_version": decision.snapshot_version,
                "estimates": {
                    name: float(f"{value:.6g}")
                    for name, value in finite_estimates(decision).items()
                },
            },
            "outcome": _values(record.outcome, _OUTCOME),
            "draft_score": float(record.draft_score),
            "accepted_nodes": list(record.accepted_nodes),
        }
    )


def parse_header(line: str) -> LogHeader:
    """Read the first line of a file.

    Raises:
        DecisionLogError: If it is none, or of another version.
    """
    values = _checked(lambda: _object(json.loads(line)), "the first line is no header")
    version = values.pop(_MARK, None)
    if version is None:
        raise DecisionLogError(f"no decision log: the first line has no {_MARK!r}")
    if version != VERSION:
        raise DecisionLogError(
            f"a decision log of version {version}; this program reads version {VERSION} only"
        )
    header = _checked(lambda: LogHeader(**values), "the header is not complete")
    if header.reward not in get_args(RewardKind):
        raise DecisionLogError(f"unknown reward {header.reward!r} in the header")
    return header


def parse_record(line: str) -> RoundRecord:
    """Read a round's line.

    Raises:
        DecisionLogError: If it is none.
    """
    record = _checked(lambda: _record(_object(json.loads(line))), "no round")
    decision = record.decision
    if not 0 < decision.propensity <= 1:
        raise DecisionLogError(f"expected a propensity in (0, 1], found {decision.propensity}")
    if decision.arm not in record.allowed:
        raise DecisionLogError(f"the arm {decision.arm} is not one of those allowed")
    if min(record.outcome.num_drafted - record.outcome.num_verified, record.outcome.batch_size) < 0:
        raise DecisionLogError("more tokens verified than drafted, or no sequence in the step")
    return record


def _record(values: Mapping[str, Any]) -> RoundRecord:
    decision = values["decision"]
    return RoundRecord(
        request_id=str(values["request"]),
        sequence=str(values["sequence"]),
        choice=int(values["choice"]),
        index=int(values["round"]),
        position=int(values["position"]),
        time=float(values["time"]),
        features=RequestFeatures(**values["features"]),
        allowed=_arms(tuple(values["allowed"])),
        decision=Decision(
            arm=Arm.parse(decision["arm"]),
            learner=str(decision["learner"]),
            reason=str(decision["reason"]),
            propensity=float(decision["propensity"]),
            snapshot_version=int(decision["snapshot_version"]),
            estimates={name: float(value) for name, value in decision["estimates"].items()},
        ),
        outcome=_outcome(values["outcome"]),
        draft_score=float(values["draft_score"]),
        accepted_nodes=tuple(int(node) for node in values["accepted_nodes"]),
    )


def _outcome(values: Mapping[str, Any]) -> Outcome:
    for name in _OUTCOME:
        if name == "draft_status":
            continue
        if not math.isfinite(values[name]) or values[name] < 0:
            raise ValueError(f"expected {name} of at least 0, found {values[name]}")
    return Outcome(**values)


@lru_cache(maxsize=1024)
def _arms(names: tuple[str, ...]) -> tuple[Arm, ...]:
    """Return arms by name, the same objects to all rounds: a log has few different lists."""
    return tuple(Arm.parse(name) for name in names)


def _checked(read: Callable[[], _T], what: str) -> _T:
    """Return what ``read`` does, whatever is wrong with what it reads as one kind of error."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise DecisionLogError(f"{what} ({reason})") from error


def _object(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise TypeError(f"expected an object, found {type(values).__name__}")
    return values


def _values(of: object, names: Sequence[str]) -> dict[str, Any]:
    """Return attributes by name; ``asdict`` would copy each and take five times as long."""
    return {name: getattr(of, name) for name in names}


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"), allow_nan=False) + "\n"


def _tenant(tenant: str, tenants: TenantNames) -> str:
    if tenants == "omit" or not tenant:
        return ""
    return hashlib.sha256(tenant.encode()).hexdigest()[:12]
