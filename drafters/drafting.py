"""One step's drafts: whom to ask, with what, and what to make of the answers.

Belongs to the thread that makes the steps. Pure but for what is passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from drafters.api import EMPTY_DRAFT, Busy, ClosedSession, Draft, DraftBatch, DraftBatchReply
from drafters.calls import Answer, Call, CallFailure, LateAnswer
from drafters.checking import malformed_reply
from drafters.config import DrafterConfig
from drafters.deadlines import Deadlines
from drafters.dispatch import Dispatcher
from drafters.fleet import Fleet
from drafters.members import MemberKey
from drafters.places import DraftWanted, SessionPlaces
from drafters.reading import read_outcome
from drafters.step import DraftResult, Step

logger = logging.getLogger(__name__)


OnReply = Callable[[Call, DraftBatchReply, float], None]
_Plan = dict[MemberKey, list[int]]


class Drafting:
    """Gets the drafts of one step after the other.

    Args:
        configs: The drafters, by name.
        fleet: Their workers.
        dispatcher: Makes the calls.
        clock: Seconds from any start, never going back.
        vocab_size: Drafted token ids must be smaller; None to accept any.
        on_reply: Told of every well-formed reply with the round trip's milliseconds.
    """

    def __init__(
        self,
        configs: Mapping[str, DrafterConfig],
        fleet: Fleet,
        dispatcher: Dispatcher,
        clock: Callable[[], float],
        vocab_size: int | None,
        on_reply: OnReply,
    ) -> None:
        self._configs = configs
        self._fleet = fleet
        self._dispatcher = dispatcher
        self._clock = clock
        self._vocab_size = vocab_size
        self._on_reply = on_reply
        self._incarnations: dict[MemberKey, str] = {}
        self._deadlines = Deadlines()
        self._generation = fleet.generation
        self.places = SessionPlaces()

    def run(self, step: Step) -> None:
        """Fill in the step's results, as far as it gets."""
        if self._generation != self._fleet.generation:
            self._generation = self._fleet.generation
            self._forget_gone()
        for late in self._dispatcher.take_late():
            self._take_late(late)
        plan: _Plan = {}
        for index, one in enumerate(step.wanted):
            place = "empty" if one.max_tokens < 1 else self._assign(one)
            if isinstance(place, str):
                step.results[index] = self.result(step, place)
            else:
                plan.setdefault(place, []).append(index)
        again = self._round(step, plan, fresh=False)
        self._round(step, again, fresh=True)

    def result(self, step: Step, status: str) -> DraftResult:
        """Return what it is to have no draft, now."""
        return DraftResult(EMPTY_DRAFT, status, (self._clock() - step.started) * 1e3)

    def _forget_gone(self) -> None:
        """Forget what was learnt of workers that are no longer members."""
        keys = self._fleet.keys
        self._deadlines.forget_all_but(keys)
        for key in [key for key in self._incarnations if key not in keys]:
            del self._incarnations[key]

    def _assign(self, one: DraftWanted) -> MemberKey | str:
        """Return the worker to ask, or the status of a draft for which nobody can be asked."""
        workers = self._fleet.usable(one.drafter)
        if not workers:
            return "away"
        home = self.places.home(one.session_id, one.drafter)
        if home in workers:
            return "busy" if self._fleet.busy(home) == "queue" else home
        free = [key for key in workers if self._fleet.busy(key) is None]
        if not free:
            return "busy"
        key, left = self.places.assign(one.session_id, one.drafter, free)
        if left is not None:
            self._fleet.close(left, [ClosedSession(one.session_id)])
        return key

    def _round(self, step: Step, plan: _Plan, *, fresh: bool) -> _Plan:
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
                self._fleet.close(key, call.batch.closed)
            unknown = self._take(step, plan[key], call, answer, offset_ms)
            if unknown and not fresh:
                again[key] = unknown
        return again

    def _call(self, step: Step, key: MemberKey, indexes: list[int], *, fresh: bool) -> Call | None:
        """Return the call to one worker; None if it is gone or there is nothing to ask it."""
        member = self._fleet.member(key)
        if member is None:
            self._give_up(step, indexes, "away")
            return None
        with_states = member.info.needs_hidden_states
        if with_states:
            self._give_up(step, [i for i in indexes if _lacks_states(step, i)], "need_context")
            indexes[:] = [i for i in indexes if not _lacks_states(step, i)]
        requests = tuple(
            self.places.request(
                one,
                min(one.max_tokens, member.info.max_tokens),
                fresh=fresh,
                with_states=with_states,
            )
            for one in (step.wanted[index] for index in indexes)
        )
        config, now = self._configs[key[0]], self._clock()
        opens = any(one.context is not None for one in requests)
        left_s = step.started + self._deadline_ms(step, key, config, opens=opens) / 1e3 - now
        if left_s <= 0 or not requests:
            self._give_up(step, indexes, "late")
            return None
        batch = DraftBatch(requests, self._fleet.take_closed(member))
        return Call(member, batch, left_s, step.started + config.deadline_ms / 1e3 - now)

    def _deadline_ms(
        self, step: Step, key: MemberKey, config: DrafterConfig, *, opens: bool
    ) -> float:
        deadline_ms = self._deadlines.deadline_ms(
            key, config.min_deadline_ms, config.deadline_ms, opens=opens
        )
        if step.worth_ms is not None:
            deadline_ms = min(deadline_ms, step.worth_ms)
        return deadline_ms

    def _give_up(self, step: Step, indexes: Sequence[int], status: str) -> None:
        for index in indexes:
            step.results.setdefault(index, self.result(step, status))

    def _take(
        self, step: Step, indexes: list[int], call: Call, answer: Answer, offset_ms: float
    ) -> list[int]:
        """Take in one worker's answer; return the sequences whose context it needs."""
        key = call.member.key
        reading = read_outcome(
            answer.outcome,
            call.batch.requests,
            is_stale=self._is_stale(key, answer.outcome),
            vocab_size=self._vocab_size,
        )
        if reading.problem is not None:
            logger.warning("drafter worker %s sent what cannot be: %s", key, reading.problem)
        self._note(call, answer.outcome, answer.round_trip_ms, reading.failure)
        if reading.busy is not None:
            self._fleet.note_busy(key, reading.busy)
        wait_ms = offset_ms + answer.elapsed_ms
        for index, (draft, status) in zip(indexes, reading.results, strict=True):
            one = step.wanted[index]
            step.results[index] = DraftResult(draft, status, wait_ms)
            if status != "busy" or reading.busy != "queue":
                position = len(one.token_ids) if status in ("ok", "empty") else 0
                self.places.set_position(one.session_id, one.drafter, position)
        return [index for index in indexes if step.results[index].status == "need_context"]

    def _take_late(self, late: LateAnswer) -> None:
        """Learn from an answer for which no step waited any more; its drafts are not used."""
        key, reply = late.call.member.key, late.outcome
        is_stale = self._is_stale(key, reply)
        if isinstance(reply, CallFailure):
            self._note(late.call, reply, 0.0, reply.reason)
            return
        if malformed_reply(reply, len(late.call.batch.requests)) is not None:
            self._note(late.call, reply, 0.0, "malformed")
            return
        self._note(late.call, reply, late.round_trip_ms, None)
        for request, draft in zip(late.call.batch.requests, reply.drafts, strict=True):
            if isinstance(draft, Draft) and not (is_stale and request.context is None):
                context = request.context
                position = len(context.token_ids) if context is not None else request.position
                position += len(request.new_token_ids)
                self.places.set_position_at(key, request.session_id, position)

    def _note(self, call: Call, outcome: object, round_trip_ms: float, failure: str | None) -> None:
        """Keep account of a worker's health and pace."""
        key = call.member.key
        if not isinstance(outcome, CallFailure) or outcome.is_fault:
            self._fleet.record(key, failure)
        if isinstance(outcome, DraftBatchReply) and failure is None:
            self._on_reply(call, outcome, round_trip_ms)
            if not any(isinstance(draft, Busy) for draft in outcome.drafts):
                limit_ms = self._configs[key[0]].deadline_ms
                self._deadlines.observe(key, min(round_trip_ms, limit_ms), opens=call.opens)

    def _is_stale(self, key: MemberKey, outcome: object) -> bool:
        """Return whether a reply comes from a process that never had our sessions; forget them."""
        if not isinstance(outcome, DraftBatchReply):
            return False
        if outcome.incarnation == self._incarnations.get(key, key[2]):
            return False
        self._incarnations[key] = outcome.incarnation
        self.places.forget_positions(key)
        return True


def _lacks_states(step: Step, index: int) -> bool:
    return step.wanted[index].hidden_states is None
