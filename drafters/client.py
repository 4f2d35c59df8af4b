"""The callers' side of the drafters: one call a step gets the drafts of all its sequences.

A lost, late or wrong drafter is an empty draft and a count, never an error; a step waits for
drafters no longer than they were given. What travels is only what a worker misses. Workers come
and go by ``set_members``; which worker answers changes nothing but the time it takes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

from drafters.api import Draft, DraftBatchReply, DrafterInfo
from drafters.calls import Call, Transport
from drafters.config import DrafterConfig
from drafters.demand import Demand, DrafterCounts
from drafters.dispatch import Dispatcher
from drafters.draft_queue import DraftQueue
from drafters.drafting import Drafting
from drafters.features import needs_hidden_states
from drafters.fleet import Fleet
from drafters.following import Following, PooledShadow, ShadowPool
from drafters.loading import load_drafter
from drafters.members import Member
from drafters.places import DraftWanted
from drafters.session_table import SessionTable
from drafters.sessions import DraftServer
from drafters.step import DraftResult, Step
from drafters.tally import DrafterTally
from drafters.transport import ActorTransport, LocalTransport

__all__ = ["DraftResult", "DraftWanted", "DrafterClient", "Member"]

logger = logging.getLogger(__name__)


class DrafterClient:
    """Gets drafts from all configured drafters.

    ``draft``, ``observe``, ``follows``, ``follow`` and ``close`` belong to one thread; the other
    methods may be called from any.

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
        dispatcher = Dispatcher(
            {"worker": ActorTransport(), "in_process": LocalTransport(), **(transports or {})},
            clock,
        )
        members = [_local_member(name, config) for name, config in self._configs.items()]
        self._local = [member for member in members if member is not None]
        self._fleet = Fleet(
            list(self._configs), self._local, dispatcher, clock, on_reply=self._pool_shadow
        )
        self._drafting = Drafting(
            self._configs, self._fleet, dispatcher, clock, vocab_size, self._count_call
        )
        shares = {name: config.shadow_share for name, config in self._configs.items()}
        self._following = Following(shares, self._fleet.usable, self._fleet.follow)
        self._shadow = ShadowPool()
        self._tallies = {name: DrafterTally() for name in self._configs}
        self._demands = {
            name: Demand(config.autoscaling.min_useful_share)
            for name, config in self._configs.items()
            if config.autoscaling is not None and config.autoscaling.min_replicas == 0
        }

    def draft(
        self, wanted: Sequence[DraftWanted], worth_ms: float | None = None
    ) -> list[DraftResult]:
        """Return one result for each sequence, in order.

        Never raises. Waits for a worker at most as long as it lately took, at most its drafter's
        ``deadline_ms``, and at most ``worth_ms``, counted from the start; a drafter in this process
        takes the time that it takes.

        Args:
            wanted: The sequences.
            worth_ms: What the drafts can save at most; waiting longer never pays. None if unknown.
        """
        step = Step(wanted, worth_ms, self._clock())
        try:
            self._drafting.run(step)
        except Exception:
            logger.exception("drafting failed")
        results = [
            step.results.get(index) or self._drafting.result(step, "failed")
            for index in range(len(wanted))
        ]
        for one, result in zip(wanted, results, strict=True):
            tally = self._tallies.get(one.drafter)
            if tally is not None and one.max_tokens >= 1:
                tally.count(result.status, result.draft)
        return results

    def observe(self, drafter: str, verified: Draft, accepted_nodes: Collection[int]) -> None:
        """Count what became of a draft.

        Args:
            drafter: Who proposed it.
            verified: The part of it that was verified.
            accepted_nodes: Indexes of the nodes that were accepted.
        """
        tally = self._tallies.get(drafter)
        if tally is not None and len(verified):
            tally.count_verified(verified, accepted_nodes)

    def follows(self, session_id: str) -> bool:
        """Return whether ``follow`` should be told of the sequence's tokens. Cheap."""
        return self._following.follows(session_id)

    def follow(self, session_id: str, token_ids: Sequence[int], tenant: str = "") -> None:
        """Have the drafters that follow the sequence compare themselves with what came; no wait.

        Call it after each round, the first time when the reply has begun.

        Args:
            session_id: The sequence.
            token_ids: Prompt and all tokens emitted so far. Borrowed: read during the call only.
            tenant: Whose request it is.
        """
        self._following.feed(session_id, token_ids, tenant)

    def close(self, session_id: str, token_ids: Sequence[int] = ()) -> None:
        """Forget a sequence here and, soon, on every worker that has a session of it.

        Args:
            session_id: The sequence.
            token_ids: Prompt and all tokens emitted, so that drafters which learn from replies get
                the last tokens, too; may be left out. Borrowed: read during the call only.
        """
        self._following.close(session_id, token_ids)
        for key, closed in self._drafting.places.close(session_id, token_ids):
            self._fleet.close(key, [closed])

    def set_members(self, members: Sequence[Member]) -> None:
        """Replace the workers by these; sessions of those that are gone move."""
        self._fleet.set_members(members)

    def versions(self) -> dict[str, str]:
        """Return the version of each drafter whose workers have been seen."""
        return self._fleet.versions()

    def wants_worker(self, name: str) -> bool:
        """Return whether a drafter that may have no worker should be given one.

        Ask regularly, from one thread: drafts that were missed since the last time count.
        """
        demand, tally = self._demands.get(name), self._tallies.get(name)
        if demand is None or tally is None:
            return False
        counts = DrafterCounts(
            num_workers=self._fleet.num_workers(name),
            is_known=name in self._fleet.versions(),
            num_missed=tally.statuses["away"],
            num_asked=tally.statuses["ok"] + tally.statuses["empty"],
            num_useful=tally.accepted[0],
        )
        return demand.wants(counts, self._clock())

    def take_shadow_counts(self) -> PooledShadow:
        """Return what drafters found following sequences, since the last call."""
        return self._shadow.take()

    def status(self) -> list[dict[str, Any]]:
        """Return for each drafter whether it is up, since when not, its counts and its cost.

        ``away_since`` is in seconds since 1970, None while it is up; ``asleep``: it has no workers
        and may have none.
        """
        return [self._status(name, tally) for name, tally in self._tallies.items()]

    @property
    def num_open(self) -> int:
        """Sequences that some worker has a session of, and workers still to be told of ends."""
        return len(self._drafting.places) + self._fleet.num_errands

    def stop(self) -> None:
        """End the client's own threads. Workers drop its sessions by themselves in time."""
        self._fleet.stop()
        for member in self._local:
            member.handle.stop()

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
            "asleep": name in self._demands and self._fleet.num_workers(name) == 0,
            "ejections": self._fleet.num_ejections(name),
            "done_without": tally.done_without,
            "by_reason": tally.by_reason(),
            "drafts": tally.num_drafts,
            "draft_tokens": tally.num_draft_tokens,
            "cost": tally.cost(),
        }

    def _count_call(self, call: Call, reply: DraftBatchReply, round_trip_ms: float) -> None:
        self._tallies[call.member.name].count_call(call, reply, round_trip_ms)
        self._pool_shadow(call.member, reply)

    def _pool_shadow(self, member: Member, reply: DraftBatchReply) -> None:
        self._shadow.add(member.name, member.info.version, reply.shadow_counts)


def _local_member(name: str, config: DrafterConfig) -> Member | None:
    if config.placement != "in_process":
        return None
    drafter = load_drafter(config)
    server = DraftServer(drafter, uuid4().hex, time.perf_counter, SessionTable(config.max_sessions))
    info = DrafterInfo(
        name, drafter.version, drafter.max_tokens, server.incarnation, needs_hidden_states(drafter)
    )
    queue = DraftQueue(server, time.perf_counter, config.max_queued)
    return Member(name, "in_process", info, queue, placement="in_process")
