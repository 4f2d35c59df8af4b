"""The callers' side of the drafters: one call a step gets the drafts of all its sequences.

A lost, late or wrong drafter is an empty draft and a count, never an error; a step waits for
drafters no longer than they were given. What travels is only what a worker misses. Workers come
and go by ``set_members``; which worker answers changes nothing but the time it takes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from drafters.api import EMPTY_DRAFT, Draft, DraftBatch, DraftBatchReply, DrafterInfo
from drafters.calls import Call, CallFailure, Transport
from drafters.config import DrafterConfig
from drafters.dispatch import Dispatcher
from drafters.fleet import Fleet
from drafters.loading import load_drafter
from drafters.members import Member, MemberKey
from drafters.places import DraftWanted, SessionPlaces
from drafters.reading import read_outcome
from drafters.sessions import DraftServer
from drafters.tally import DrafterTally
from drafters.transport import ActorTransport, LocalTransport

__all__ = ["DraftResult", "DraftWanted", "DrafterClient", "Member"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DraftResult:
    """What came of one wanted draft.

    Attributes:
        draft: The draft, checked; empty unless ``status`` is ``ok``.
        status: ``ok``; ``empty``: the drafter found nothing; ``late``: no answer within the
            deadline, or the worker still owes an earlier one; ``failed``: the drafter raised;
            ``malformed``: it proposed what cannot be; ``need_context``: there was no time left to
            send the context; ``away``: no worker, or none that is not left alone for now.
        wait_ms: From the start of ``draft`` until this draft was there or given up.
    """

    draft: Draft
    status: str
    wait_ms: float


@dataclass(frozen=True, slots=True)
class _Step:
    """One ``draft`` call under way."""

    wanted: Sequence[DraftWanted]
    results: dict[int, DraftResult]
    started: float


_Plan = dict[MemberKey, list[int]]


class DrafterClient:
    """Gets drafts from all configured drafters. ``draft`` and ``close`` belong to one thread.

    The other methods may be called from any.

    Args:
        configs: The drafters, by name. Those placed ``in_process`` are made here.
        clock: Seconds from any start, never going back.
        wall_clock: Seconds since 1970.
        vocab_size: Drafted token ids must be smaller; None to accept any.
        transports: How calls travel, by placement.

    Raises:
        DrafterConfigError: If a drafter in this process cannot be made.
    """

    def __init__(
        self,
        configs: Mapping[str, DrafterConfig],
        clock: Callable[[], float] = time.monotonic,
        *,
        wall_clock: Callable[[], float] = time.time,
        vocab_size: int | None = None,
        transports: Mapping[str, Transport] | None = None,
    ) -> None:
        self._configs = dict(configs)
        self._clock = clock
        self._wall_clock = wall_clock
        self._vocab_size = vocab_size
        self._dispatcher = Dispatcher(
            {"worker": ActorTransport(), "in_process": LocalTransport(), **(transports or {})},
            clock,
        )
        local = [_local_member(name, config) for name, config in self._configs.items()]
        self._fleet = Fleet(
            list(self._configs), [m for m in local if m is not None], self._dispatcher, clock
        )
        self._places = SessionPlaces()
        self._incarnations: dict[MemberKey, str] = {}
        self._tallies = {name: DrafterTally() for name in self._configs}

    def draft(self, wanted: Sequence[DraftWanted]) -> list[DraftResult]:
        """Return one result for each sequence, in order.

        Never raises, and waits for workers at most their drafter's ``deadline_ms``, counted from
        the start; a drafter in this process takes the time that it takes.
        """
        step = _Step(wanted, {}, self._clock())
        try:
            self._run(step)
        except Exception:
            logger.exception("drafting failed")
        results = [
            step.results.get(index) or self._result(step, "failed") for index in range(len(wanted))
        ]
        for one, result in zip(wanted, results, strict=True):
            tally = self._tallies.get(one.drafter)
            if tally is not None and one.max_tokens >= 1:
                tally.count(result.status, len(result.draft))
        return results

    def close(self, session_id: str) -> None:
        """Forget a sequence here and, soon, on every worker that has a session of it."""
        self._fleet.close(self._places.close(session_id), session_id)

    def set_members(self, members: Sequence[Member]) -> None:
        """Replace the workers by these; sessions of those that are gone move."""
        self._fleet.set_members(members)

    def versions(self) -> dict[str, str]:
        """Return the version of each drafter whose workers have been seen."""
        return self._fleet.versions()

    def status(self) -> list[dict[str, Any]]:
        """Return for each drafter whether it is up, since when not, and its counts.

        ``away_since`` is in seconds since 1970, None while it is up.
        """
        return [self._status(name, tally) for name, tally in self._tallies.items()]

    def stop(self) -> None:
        """End the client's own thread. Workers drop its sessions by themselves in time."""
        self._fleet.stop()

    def _status(self, name: str, tally: DrafterTally) -> dict[str, Any]:
        away_since = self._fleet.away_since(name)
        return {
            "name": name,
            "placement": self._configs[name].placement,
            "up": away_since is None,
            "away_since": None
            if away_since is None
            else self._wall_clock() - (self._clock() - away_since),
            "workers": self._fleet.num_workers(name),
            "done_without": tally.done_without,
            "by_reason": tally.by_reason(),
            "drafts": tally.num_drafts,
            "draft_tokens": tally.num_draft_tokens,
        }

    def _run(self, step: _Step) -> None:
        plan: _Plan = {}
        for index, one in enumerate(step.wanted):
            if one.max_tokens < 1:
                step.results[index] = self._result(step, "empty")
                continue
            key = self._assign(one)
            if key is None:
                step.results[index] = self._result(step, "away")
                continue
            plan.setdefault(key, []).append(index)
        again = self._round(step, plan, fresh=False)
        self._round(step, again, fresh=True)

    def _assign(self, one: DraftWanted) -> MemberKey | None:
        workers = self._fleet.usable(one.drafter)
        if not workers:
            return None
        key, left = self._places.assign(one.session_id, one.drafter, workers)
        if left is not None:
            self._fleet.close([left], one.session_id)
        return key

    def _round(self, step: _Step, plan: _Plan, *, fresh: bool) -> _Plan:
        """Call each worker of the plan once; return what must be asked again with its context."""
        calls = {
            key: call
            for key, indexes in plan.items()
            if (call := self._call(step, key, indexes, fresh=fresh)) is not None
        }
        offset_ms = (self._clock() - step.started) * 1e3
        answers = self._dispatcher.call(list(calls.values()))
        again: _Plan = {}
        for (key, call), answer in zip(calls.items(), answers, strict=True):
            if not answer.sent:
                self._fleet.put_back_closed(key, call.batch.closed)
            wait_ms = offset_ms + answer.elapsed_ms
            unknown = self._take(step, plan[key], call, answer.outcome, wait_ms)
            if unknown and not fresh:
                again[key] = unknown
        return again

    def _call(self, step: _Step, key: MemberKey, indexes: list[int], *, fresh: bool) -> Call | None:
        """Return the call to one worker; None if it is gone or there is no time for it."""
        member = self._fleet.member(key)
        deadline_s = self._configs[key[0]].deadline_ms / 1e3
        left_s = step.started + deadline_s - self._clock()
        if member is None or left_s <= 0:
            for index in indexes:
                step.results.setdefault(index, self._result(step, "late" if member else "away"))
            return None
        requests = tuple(
            self._places.request(one, min(one.max_tokens, member.info.max_tokens), fresh=fresh)
            for one in (step.wanted[index] for index in indexes)
        )
        return Call(member, DraftBatch(requests, self._fleet.take_closed(key)), left_s)

    def _take(
        self,
        step: _Step,
        indexes: list[int],
        call: Call,
        outcome: DraftBatchReply | CallFailure,
        wait_ms: float,
    ) -> list[int]:
        """Take in one worker's answer; return the sequences whose context it needs."""
        key = call.member.key
        reading = read_outcome(
            outcome,
            call.batch.requests,
            is_stale=self._is_stale(key, outcome),
            vocab_size=self._vocab_size,
        )
        if reading.problem is not None:
            logger.warning("drafter worker %s sent what cannot be: %s", key, reading.problem)
        self._fleet.record(key, reading.failure)
        for index, (draft, status) in zip(indexes, reading.results, strict=True):
            one = step.wanted[index]
            step.results[index] = DraftResult(draft, status, wait_ms)
            position = len(one.token_ids) if status in ("ok", "empty") else 0
            self._places.set_position(one.session_id, one.drafter, position)
        return [index for index in indexes if step.results[index].status == "need_context"]

    def _is_stale(self, key: MemberKey, outcome: object) -> bool:
        """Return whether a reply comes from a process that never had our sessions; forget them."""
        if not isinstance(outcome, DraftBatchReply):
            return False
        if outcome.incarnation == self._incarnations.get(key, key[2]):
            return False
        self._incarnations[key] = outcome.incarnation
        self._places.forget_positions(key)
        return True

    def _result(self, step: _Step, status: str) -> DraftResult:
        return DraftResult(EMPTY_DRAFT, status, (self._clock() - step.started) * 1e3)


def _local_member(name: str, config: DrafterConfig) -> Member | None:
    if config.placement != "in_process":
        return None
    drafter = load_drafter(config)
    server = DraftServer(drafter, uuid4().hex, time.perf_counter)
    info = DrafterInfo(name, drafter.version, drafter.max_tokens, server.incarnation)
    return Member(name, "in_process", info, server, placement="in_process")
