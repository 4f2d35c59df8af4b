"""What every part says of itself, gathered without ever failing or waiting for long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

from replicas.ingress.handles import BroadcastHandle, PolicyHandle, StatusMethod

logger = logging.getLogger(__name__)

TIMEOUT_S = 1.0
"""How long a part may take to answer."""

DUMP_TIMEOUT_S = 10.0
"""How long the Policy may take to say all that was learnt."""

FORGET_AFTER_S = 900.0
"""How long a replica that is away is remembered; Serve gives its successor another name."""

NAME_KEYS = ("replica", "replica_id", "name")
"""Keys under which a report names who made it, the best first."""


@dataclass
class _Known:
    report: Mapping[str, Any] = field(default_factory=dict)
    away_since: float | None = None
    num_misses: int = 0


class Roster:
    """Remembers who answered, who no longer does, since when, and how often it was missed."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def update(self, reports: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """Take the answers of one round of asking."""
        for name, report in reports.items():
            entry = self._known.setdefault(name, _Known())
            entry.report, entry.away_since = report, None
        for name, entry in list(self._known.items()):
            if name in reports:
                continue
            entry.num_misses += 1
            entry.away_since = entry.away_since if entry.away_since is not None else now
            if now - entry.away_since > FORGET_AFTER_S:
                del self._known[name]

    def expect(self, name: str) -> None:
        """Show this one even if it has never answered."""
        self._known.setdefault(name, _Known())

    def entries(self) -> list[dict[str, Any]]:
        """Return one entry a part, by name."""
        return [
            {
                "name": name,
                "is_away": entry.away_since is not None,
                "away_since": entry.away_since,
                "num_misses": entry.num_misses,
                "report": dict(entry.report) or None,
            }
            for name, entry in sorted(self._known.items())
        ]


class StatusCollector:
    """Asks Verifiers, Policy and drafters how they are.

    Args:
        verifier: Its every replica has ``report``.
        policy: Has ``status`` and ``dump``.
        drafter_hosts: By drafter; the every replica of each has ``status``.
    """

    def __init__(
        self,
        verifier: BroadcastHandle,
        policy: PolicyHandle,
        drafter_hosts: Mapping[str, BroadcastHandle],
    ) -> None:
        self._verifier = verifier
        self._policy = policy
        self._drafter_hosts = dict(drafter_hosts)
        self._verifiers = Roster()
        self._policies = Roster()
        self._policies.expect("policy")
        self._drafters = {name: Roster() for name in drafter_hosts}

    async def is_any_verifier_alive(self) -> bool:
        """Return whether a Verifier answers."""
        return bool(await _ask_all(self._verifier, "report"))

    async def explain(self, request_id: str, tenant: str) -> list[Mapping[str, Any]]:
        """Return what each Verifier holds of a request's rounds; see ``Verifier.explain``."""
        return await _ask_all(self._verifier, "explain", request_id, tenant)

    async def learnt(self) -> Mapping[str, Any] | None:
        """Return what the Policy has learnt; None if it does not answer."""
        return await _ask_policy(self._policy.dump, DUMP_TIMEOUT_S)

    async def collect(self) -> dict[str, Any]:
        """Return everybody's entry."""
        names = list(self._drafter_hosts)
        verifiers, policy, *drafters = await asyncio.gather(
            _ask_all(self._verifier, "report"),
            _ask_policy(self._policy.status, TIMEOUT_S),
            *(_ask_all(self._drafter_hosts[name], "status") for name in names),
        )
        now = time.time()
        self._verifiers.update(_named(verifiers, "verifier"), now)
        self._policies.update({"policy": policy} if policy is not None else {}, now)
        for name, reports in zip(names, drafters, strict=True):
            self._drafters[name].update(_named(reports, name), now)
        return {
            "verifiers": self._verifiers.entries(),
            "policy": self._policies.entries()[0],
            "drafters": {name: roster.entries() for name, roster in self._drafters.items()},
        }


def _named(reports: list[Mapping[str, Any]], role: str) -> dict[str, Mapping[str, Any]]:
    """Return reports by the names they give; a number where they give none."""
    named: dict[str, Mapping[str, Any]] = {}
    for number, report in enumerate(reports):
        name = next((str(report[key]) for key in NAME_KEYS if report.get(key)), "")
        named[name if name and name not in named else f"{name or role}#{number}"] = report
    return named


async def _ask_all(handle: BroadcastHandle, method: str, *args: Any) -> list[Mapping[str, Any]]:
    try:
        broadcast = handle.broadcast(method, *args)
        answers = await broadcast.results_async(timeout_s=TIMEOUT_S, return_exceptions=True)
    except Exception as error:  # a boundary: who does not answer is away, whatever the reason
        logger.warning("nobody answered %s: %s", method, type(error).__name__)
        return []
    return [answer for answer in answers if isinstance(answer, Mapping)]


async def _ask_policy(method: StatusMethod, timeout_s: float) -> Mapping[str, Any] | None:
    try:
        answer = await asyncio.wait_for(_awaited(method.remote()), timeout_s)
    except Exception as error:  # a boundary: who does not answer is away, whatever the reason
        logger.warning("the policy did not answer: %s", type(error).__name__)
        return None
    return answer if isinstance(answer, Mapping) else None


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
