"""One Verifier's ``goodput``: its sequences, what drafts of theirs are worth, what steps take.

This is what a Verifier keeps beyond its prompts: counts by context and the rates made of them,
measured waits, the guard's comparison, and how alike prompts are. A seat is one prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from policy_service.abilities import SeatRound
from policy_service.api import (
    Arm,
    ArmCounts,
    CellKey,
    Choice,
    Outcome,
    Snapshot,
    TrimItem,
)
from policy_service.goodput.arms import ArmGrid
from policy_service.goodput.ask import Offers, ask_step
from policy_service.goodput.cells import EMPTY, bucket_of
from policy_service.goodput.choices import Choices
from policy_service.goodput.contexts import ContextRates
from policy_service.goodput.effects import Strength, fade
from policy_service.goodput.evidence import Evidence
from policy_service.goodput.guard import Guard
from policy_service.goodput.learning import Lessons, learn
from policy_service.goodput.probes import possible_probes
from policy_service.goodput.rates import Floats, expit
from policy_service.goodput.seats import Seats
from policy_service.goodput.settings import Settings
from policy_service.goodput.state import DrafterEffect, PromptState
from policy_service.goodput.step_costs import DrafterCall, StepCosts
from policy_service.goodput.survival import chain_survival, depth_columns, tree_survival
from policy_service.goodput.trim import trim_step
from policy_service.reward import is_pull
from policy_service.step_times import StepLoad

_FADE_STEPS = 4
_NOT_CALLED = frozenset({"away", "busy"})
"""Draft statuses that say nothing of how long the drafter takes."""


class Fleet:
    """Plans the steps of one Verifier; a ``BatchPlanner``."""

    def __init__(self, settings: Settings) -> None:
        """Start without drafters, sequences and counts."""
        self._settings = settings
        self._grid = ArmGrid(settings.caps)
        self._versions: dict[str, str] = {}
        self._last_versions: Mapping[str, str] | None = None
        self._numbers: dict[str, int] = {}
        self._evidence = Evidence(settings.max_contexts)
        self._rates = ContextRates(self._evidence, self._grid.caps, settings.shrinkage)
        self._seats = Seats(self._rates, self._grid.caps)
        self._costs = StepCosts(len(self._grid.caps))
        self._strength = Strength(settings.kappa)
        self._columns = depth_columns(self._grid.caps[-1])
        self._guard = Guard(settings.guard_share, settings.trial_share, settings.guard_errors)
        self._wait_ms = 0.0
        self._num_steps = 0
        self._is_drafting: bool | None = None
        self._trees: dict[int, tuple[int, ...]] = {}

    def open(self, chain: Sequence[str]) -> int:
        """Return the seat of a new sequence of these contexts."""
        names = (*chain[:1], *chain[-2:])  # three levels, the own one twice where there are two
        rows = tuple(self._evidence.acquire(name) for name in names)
        self._rates.open(names[0], rows)
        return self._seats.open(rows)

    def close(self, seat: int) -> None:
        """Give a seat back, and learn from its prompt how alike prompts are."""
        seats = self._seats
        for surprise, spread in seats.surprises[:, seat].T.tolist():
            self._strength.add(surprise, spread)
        for row in seats.chains[seat].tolist():
            self._evidence.release(row)
        seats.close(seat)

    def plans(self, arms: Sequence[Arm]) -> bool:
        """Return whether all arms are of the configured lengths."""
        return self._grid.covers(arms)

    def state(self, seat: int) -> PromptState:
        """Return the state of a prompt."""
        values = self._seats.effects.at(seat).fields.T.tolist()
        names = self._grid.drafters
        effects = {name: DrafterEffect(*one) for name, one in zip(names, values, strict=True)}
        return PromptState(effects, rounds=int(self._seats.rounds[seat]))

    def ask(
        self,
        seats: Sequence[int],
        rooms: Sequence[int],
        allowed: Sequence[tuple[Arm, ...]],
        load: StepLoad,
        rng: np.random.Generator,
    ) -> list[Choice]:
        """Choose an arm for every sequence of a step; see ``ask``, ``guard`` and ``probes``."""
        index = np.array(seats)
        offers = self._offers(index, rooms, allowed, load)
        plan = ask_step(offers, load.batch_size, self._costs.time_of(load))
        probes = possible_probes(plan, offers, self._settings.probe_share, self._rates.drafts)
        choices = Choices.made(plan, probes, self._guard, load.batch_size, rng)
        self._seats.is_probe[index] = choices.is_probe
        caps = np.array((*self._grid.caps,) * len(self._grid.drafters) + (0,))
        self._seats.asked[index] = np.minimum(caps[choices.arms], rooms)
        self._wait_ms, self._trees = plan.wait_ms, {}
        self._is_drafting = choices.is_drafting
        self._costs.note_rate(load, plan.tokens / plan.time_ms)
        return choices.explained(self._grid.arms)

    def trim(
        self,
        seats: Sequence[int],
        items: Sequence[TrimItem],
        load: StepLoad,
        rng: np.random.Generator,
    ) -> list[int]:
        """Return how many nodes of each draft to verify; see ``trim`` and ``probes``."""
        index = np.array(seats)
        longest = len(self._columns)
        lengths = np.minimum([item.draft_length for item in items], longest)
        self._trees = {
            seat: item.parents for seat, item in zip(seats, items, strict=True) if item.parents
        }
        self._seats.bucket[index] = [
            bucket_of(item.draft_score) if item.draft_length else EMPTY for item in items
        ]
        survival = self._survival(index, items)
        time_of = self._costs.time_of(load)
        kept = trim_step(
            survival, lengths, load.batch_size, lambda nodes: time_of(nodes) + self._wait_ms
        )
        kept = np.maximum(kept, self._seats.is_probe[index] & (lengths > 0))
        if rng.random() < self._settings.probe_share:
            _keep_one_more(kept, lengths, survival)
        result: list[int] = kept.tolist()
        return result

    def observe(self, rounds: Sequence[SeatRound], load: StepLoad) -> None:
        """Learn from the rounds of a step."""
        lessons, calls = Lessons(), dict[int, DrafterCall]()
        numbers, trees = self._numbers, self._trees
        for seat, decision, outcome, nodes in rounds:
            arm = decision.arm
            drafter = numbers.get(arm.drafter)
            if drafter is None or outcome.draft_status in _NOT_CALLED:
                continue
            call = calls.get(drafter)
            if call is None:
                call = calls[drafter] = DrafterCall()
            call.add(arm.gamma, outcome.draft_wait_ms)
            if is_pull(outcome):
                lessons.add(seat, drafter, outcome)
                if seat in trees:
                    lessons.add_tree(trees[seat], outcome, nodes)
        self._observe_step([one[2] for one in rounds], calls, load)
        precision = self._strength.precision
        self._fade(np.array([one[0] for one in rounds]), precision)
        if lessons.rows:
            learn(
                lessons,
                self._seats,
                self._rates,
                self._evidence,
                self._settings,
                precision,
                self._columns,
            )

    def set_drafters(self, versions: Mapping[str, str]) -> None:
        """Say which drafters there are; one of another version starts without counts."""
        if versions is self._last_versions:
            return
        self._last_versions = versions
        for name, version in versions.items():
            known = self._versions.get(name)
            if known is None:
                number = self._numbers[name] = self._grid.add(name)
                self._evidence.set_drafter(number, name, version)
                self._seats.resize(0, number + 1)
                self._costs.waits.grow(number + 1)
                self._rates.grow(number + 1)
            elif known != version:
                number = self._numbers[name]
                self._evidence.set_drafter(number, name, version)
                self._seats.forget_drafter(number)
                self._costs.waits.forget(number)
                self._rates.renew()
            self._versions[name] = version

    def set_snapshot(self, snapshot: Snapshot, weight: float, *, is_new: bool) -> None:
        """Take over the pool's counts."""
        self._evidence.set_snapshot(snapshot, weight, is_new=is_new)

    def take_deltas(self) -> dict[CellKey, ArmCounts]:
        """Return what was counted of drafts since the last call."""
        return self._evidence.take()

    def _offers(
        self,
        index: NDArray[np.intp],
        rooms: Sequence[int],
        allowed: Sequence[tuple[Arm, ...]],
        load: StepLoad,
    ) -> Offers:
        """Return what every arm is worth to every sequence."""
        self._rates.refresh()
        self._seats.refresh(index)
        waits, drafting = self._costs.waits.shared_among(len(index))
        masks = self._grid.allowed(allowed, rooms)
        return Offers(
            self._seats.tokens.take(index, axis=-1),
            self._seats.rows.take(index, axis=-1),
            None if masks is None else masks.T.reshape(*drafting.shape, len(index)),
            waits + self._costs.drafting_ms,
            drafting,
            self._costs.rate(load),
        )

    def _survival(self, index: NDArray[np.intp], items: Sequence[TrimItem]) -> Floats:
        """Return the survival of each draft's nodes, ``[num_drafts, longest]``."""
        drafters = np.array([self._numbers[item.decision.arm.drafter] for item in items])
        buckets = np.minimum(self._seats.bucket[index], EMPTY - 1)
        logits = self._rates.logits[self._seats.chains[index, 0], drafters, buckets]
        shifts = self._seats.effects.shift[index, drafters]
        survival = chain_survival(logits[:, self._columns], shifts)
        for place, item in enumerate(items):
            if item.parents:
                parents = item.parents[: len(self._columns)]
                acceptance = expit(logits[place] + shifts[place]).tolist()
                survival[place, : len(parents)] = tree_survival(parents, acceptance)
        return survival

    def _fade(self, index: NDArray[np.intp], precision: float) -> None:
        """Let what is known of prompts fade by a round; by several at once now and then."""
        seats = self._seats
        seats.rounds[index] += 1
        self._num_steps += 1
        if self._num_steps % _FADE_STEPS == 0:
            discount = self._settings.discount**_FADE_STEPS
            fade(seats.effects, discount, precision, index)
            seats.seen[index] *= np.float32(discount)

    def _observe_step(
        self, outcomes: Sequence[Outcome], calls: Mapping[int, DrafterCall], load: StepLoad
    ) -> None:
        """Learn what the step took."""
        step_ms = outcomes[0].step_ms
        for drafter, call in calls.items():
            cap = self._grid.caps.index(call.gamma)
            self._costs.waits.observe(drafter, cap, call.asked, call.wait_ms)
        self._costs.waits.forget_some(calls)
        verified = sum([one.num_verified for one in outcomes])
        wait_ms = max([call.wait_ms for call in calls.values()], default=0.0)
        self._costs.observe(load, verified, wait_ms, step_ms, drafting=bool(calls))
        if not load.prefill_rows and self._is_drafting is not None:
            tokens = sum([one.num_accepted for one in outcomes]) + len(outcomes)
            self._guard.observe(len(outcomes), not self._is_drafting, tokens, step_ms)


def _keep_one_more(kept: NDArray[np.int64], lengths: NDArray[np.int64], survival: Floats) -> None:
    """Have the best of the tokens verified that come right after those kept."""
    cut = np.flatnonzero(kept < lengths)
    if len(cut):
        kept[cut[np.argmax(survival[cut, kept[cut]])]] += 1
