"""Chooses each round's arm on a Verifier and learns from what it earned: no I/O, no waiting.

Every sequence has a learner of its own, seeded from the pooled counts; its state ends with it. What
rounds cost and earned is added up per cell, for the ledger to send. A round counts for the most
specific context of its sequence that was admitted, and for that one only: whoever pools counts sums
them upwards, so that sums agree on every level.

A round whose drafter did not answer (``late``, ``failed``, ``away``, ``malformed``,
``need_context``) teaches the learner nothing and is counted as ``failed``, not as a pull; after a
fault the sequence does without that drafter for some rounds (``policy_service.suspension``), unless
the request pinned it. A draft that was empty is a pull that earned 1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from policy_service.abilities import BatchPlanner, SeatRound, batch_planner, kept
from policy_service.api import (
    EMPTY_SNAPSHOT,
    Arm,
    ArmCounts,
    AskItem,
    CellKey,
    Decision,
    Learner,
    Outcome,
    RequestFeatures,
    Snapshot,
    SpeculationOptions,
    TrimItem,
)
from policy_service.config import PolicyConfig
from policy_service.contexts import ContextRegistry, context_chain
from policy_service.joint import (
    UNDECIDED,
    Asked,
    Drafted,
    ask_jointly,
    trim_jointly,
)
from policy_service.loading import learner_names, load_learner
from policy_service.options import check_options
from policy_service.priors import arm_priors
from policy_service.sequence_plan import SequencePlan, is_plain, open_arms, pinned_arm
from policy_service.snapshot_cells import contexts_of
from policy_service.step_times import StepLoad, StepTimes
from policy_service.tallies import Tallies


class Planner:
    """Plans the rounds of one Verifier's sequences.

    ``open``, ``ask``, ``trim``, ``observe`` and ``close`` belong to the engine's thread; the other
    methods may be called from any thread.
    """

    def __init__(
        self, config: PolicyConfig, drafter_versions: Mapping[str, str], rng: np.random.Generator
    ) -> None:
        """Make a planner without open sequences.

        Args:
            config: Arms, learner and pooling.
            drafter_versions: The drafters that there are and the version of each.
            rng: Draws of the learners.

        Raises:
            PolicyConfigError: If the configured learner or a parameter of it is not valid.
        """
        self._config = config
        self._rng = rng
        self._lock = threading.Lock()
        self._plans: dict[str, SequencePlan] = {}
        self._learners: dict[str, Learner[Any]] = {}
        self._versions = dict(drafter_versions)
        self._known_drafters = frozenset(drafter_versions)
        self._snapshot, self._snapshot_weight = EMPTY_SNAPSHOT, 1.0
        self._contexts = ContextRegistry(config.max_contexts, config.max_contexts_per_tenant)
        self._step_times: StepTimes | None = None
        self._load = StepLoad(0)
        self._batches: dict[str, BatchPlanner] = {}
        self._tallies = Tallies()
        self._notify_after = 0
        self._notify: Callable[[], None] | None = None
        self._learner(config.learner, config.params)

    def check(self, options: SpeculationOptions) -> None:
        """Check what a request says about speculation; see ``options.check_options``.

        A drafter that is away for the moment is still a right name.

        Raises:
            PolicyConfigError: If it is not valid; the message says what is right.
        """
        check_options(options, self._known_drafters, self._config.max_gamma)

    def open(
        self, sequence_id: str, features: RequestFeatures, options: SpeculationOptions
    ) -> None:
        """Start a sequence: its context, its learner and the learner's priors.

        Never fails: options are checked where the request arrives, and a name that is not known
        here (yet) falls back to the configured learner or to plain decoding.
        """
        with self._lock:
            chain = self._contexts.admit(context_chain(features))
            snapshot, weight, versions = self._snapshot, self._snapshot_weight, self._versions
        arms = open_arms(options, versions, self._config.gammas)
        priors = arm_priors(
            snapshot,
            chain,
            {arm: versions.get(arm.drafter, "") for arm in arms},
            shrinkage=self._config.shrinkage,
            strength=self._config.prior_strength,
            weight=weight,
        )
        learner = self._learner_for(options)
        state = learner.initial_state(arms, priors)
        plan = SequencePlan(chain[0], options, learner, state, snapshot.version, features)
        self._plans[sequence_id] = plan
        batch = self._batches.get(learner.name)
        if batch is not None and batch.plans(arms):
            batch.set_drafters(versions)
            plan.batch, plan.seat = batch, batch.open(chain)

    def ask(self, items: Sequence[AskItem], prefill_rows: int = 0) -> list[Decision]:
        """Choose each sequence's arm for this step, in the order of ``items``.

        Args:
            items: The sequences that decode in the step.
            prefill_rows: Tokens of prompts that the step computes besides, as far as is known.

        Raises:
            KeyError: If a sequence is not open.
        """
        drafters, gammas, batch_size = self._versions, self._config.gammas, len(items)
        decisions: list[Decision] = []
        joint: dict[BatchPlanner, list[Asked]] = {}
        rows = 0
        for place, item in enumerate(items):
            plan = self._plans[item.sequence_id]
            if plan.batch is not None and item.room > 0:
                allowed = plan.allowed(drafters, gammas)
                joint.setdefault(plan.batch, []).append((place, plan, item.room, allowed))
                decisions.append(UNDECIDED)
            else:
                decision = plan.decide(
                    item.room, drafters, gammas, self._rng, batch_size, self._step_times
                )
                rows += min(decision.arm.gamma, item.room)
                decisions.append(decision)
        cached = sum([item.cached for item in items])
        self._load = StepLoad(batch_size, self._step_times, rows, cached, prefill_rows)
        for place, decision in ask_jointly(joint, drafters, self._load, self._rng):
            decisions[place] = decision
        return decisions

    def trim(self, items: Sequence[TrimItem]) -> list[int]:
        """Return how many nodes of each draft to verify; the paper's learners keep all of them."""
        sizes: list[int] = []
        joint: dict[BatchPlanner, list[Drafted]] = {}
        for place, item in enumerate(items):
            plan = self._plans.get(item.sequence_id)
            if plan is not None and plan.is_joint and plan.batch is not None:
                joint.setdefault(plan.batch, []).append((place, plan, item))
                sizes.append(0)
            else:
                sizes.append(_kept(plan, item))
        self._load = replace(self._load, other_rows=sum(sizes))
        for place, size in trim_jointly(joint, self._load, self._rng):
            sizes[place] = size
        return sizes

    def observe(
        self,
        rounds: Sequence[tuple[str, Decision, Outcome]],
        accepted_nodes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        """Learn from the rounds of a step; those of sequences closed meanwhile are left out.

        Args:
            rounds: One of each sequence that decoded.
            accepted_nodes: By sequence, of drafts that were trees, the nodes that were accepted,
                from the root down; of a chain it is clear which they are.
        """
        joint: dict[BatchPlanner, list[SeatRound]] = {}
        played = []
        kind = self._config.reward
        for sequence_id, decision, outcome in rounds:
            plan = self._plans.get(sequence_id)
            if plan is None:
                continue
            played.append(((plan.context, decision.arm, plan.drafter_version), outcome))
            if plan.is_joint and plan.batch is not None:
                nodes = accepted_nodes.get(sequence_id, ())
                joint.setdefault(plan.batch, []).append((plan.seat, decision, outcome, nodes))
            plan.learn(decision, outcome, kind)
        for batch, members in joint.items():
            batch.observe(members, self._load)
        with self._lock:
            self._tallies.add(played)
            notify = self._notify if self._tallies.num_rounds >= self._notify_after else None
        if notify is not None:
            notify()

    def allowed_arms(self, sequence_id: str) -> tuple[Arm, ...]:
        """Return what a sequence's last decision was chosen from; nothing if it is not open."""
        plan = self._plans.get(sequence_id)
        if plan is None:
            return ()
        if plan.is_joint:
            return plan.allowed(self._versions, self._config.gammas)
        return plan.round.allowed

    def close(self, sequence_id: str) -> None:
        """Forget a sequence; unknown ones are no error."""
        plan = self._plans.pop(sequence_id, None)
        if plan is not None and plan.batch is not None:
            plan.batch.close(plan.seat)

    def set_snapshot(self, snapshot: Snapshot, weight: float = 1.0) -> None:
        """Seed sequences opened from now on with this snapshot.

        Args:
            snapshot: The pooled counts.
            weight: Share of its pulls that still counts for its age, in [0, 1].
        """
        is_new = snapshot.version != self._snapshot.version
        for batch in list(self._batches.values()):
            batch.set_snapshot(snapshot, weight, is_new=is_new)
        with self._lock:
            if is_new:
                self._contexts.refresh(contexts_of(snapshot.cells))
            self._snapshot, self._snapshot_weight = snapshot, weight

    def set_step_times(self, step_times: StepTimes) -> None:
        """Say how long the Verifier's steps take now; choices from now on are made with it."""
        self._step_times = step_times

    def set_drafters(self, drafter_versions: Mapping[str, str]) -> None:
        """Replace the drafters that there are; running sequences follow with their next round."""
        with self._lock:
            self._versions = dict(drafter_versions)
            self._known_drafters = self._known_drafters | set(drafter_versions)

    def take_deltas(self) -> dict[CellKey, ArmCounts]:
        """Return what was counted since the last call, and start counting anew."""
        with self._lock:
            tallies, self._tallies = self._tallies, Tallies()
        deltas = tallies.deltas()
        for batch in list(self._batches.values()):
            deltas.update(batch.take_deltas())
        return deltas

    def notify_after(self, num_rounds: int, callback: Callable[[], None]) -> None:
        """Call ``callback``, on the engine's thread, while so many rounds wait to be taken."""
        with self._lock:
            self._notify_after, self._notify = num_rounds, callback

    def _learner_for(self, options: SpeculationOptions) -> Learner[Any]:
        """Return a request's learner, with its default parameters unless it is the configured."""
        if is_plain(options):
            name = "none"
        elif pinned_arm(options) is not None:
            name = "fixed"
        else:
            name = options.learner or self._config.learner
        if name not in self._learners and name not in learner_names():
            name = self._config.learner
        return self._learner(name, {})

    def _learner(self, name: str, params: Mapping[str, Any]) -> Learner[Any]:
        """Return a learner, made when it is wanted for the first time."""
        learner = self._learners.get(name)
        if learner is None:
            learner = self._learners[name] = load_learner(name, params)
            batch = batch_planner(learner, self._config)
            if batch is not None:
                batch.set_snapshot(self._snapshot, self._snapshot_weight, is_new=True)
                self._batches[learner.name] = batch
        return learner


def _kept(plan: SequencePlan | None, item: TrimItem) -> int:
    """Return how many nodes of one draft its learner wants verified."""
    if plan is None:
        return item.draft_length
    return kept(plan.learner, item.decision.arm, item.draft_length, item.draft_score)
