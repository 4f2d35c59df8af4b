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
from typing import Any

import numpy as np

from policy_service.abilities import kept
from policy_service.api import (
    EMPTY_SNAPSHOT,
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
from policy_service.loading import learner_names, load_learner
from policy_service.options import check_options
from policy_service.priors import arm_priors
from policy_service.reward import round_counts
from policy_service.sequence_plan import SequencePlan, is_plain, open_arms, pinned_arm
from policy_service.step_times import StepTimes

_NO_COUNTS = ArmCounts()


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
        self._learners = {config.learner: load_learner(config.learner, config.params)}
        self._versions = dict(drafter_versions)
        self._known_drafters = frozenset(drafter_versions)
        self._snapshot, self._snapshot_weight = EMPTY_SNAPSHOT, 1.0
        self._contexts = ContextRegistry(config.max_contexts)
        self._step_times: StepTimes | None = None
        self._deltas: dict[CellKey, ArmCounts] = {}
        self._num_rounds = 0
        self._notify_after = 0
        self._notify: Callable[[], None] | None = None

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
        self._plans[sequence_id] = SequencePlan(
            chain[0], options, learner, state, snapshot.version, features
        )

    def ask(self, items: Sequence[AskItem]) -> list[Decision]:
        """Choose each sequence's arm for this step, in the order of ``items``.

        Raises:
            KeyError: If a sequence is not open.
        """
        drafters, gammas, batch_size = self._versions, self._config.gammas, len(items)
        return [
            self._plans[item.sequence_id].decide(
                item.room, drafters, gammas, self._rng, batch_size, self._step_times
            )
            for item in items
        ]

    def trim(self, items: Sequence[TrimItem]) -> list[int]:
        """Return how many nodes of each draft to verify; the paper's learners keep all of them."""
        return [self._kept(item) for item in items]

    def observe(self, rounds: Sequence[tuple[str, Decision, Outcome]]) -> None:
        """Learn from the rounds of a step; those of sequences closed meanwhile are left out."""
        added: list[tuple[CellKey, ArmCounts]] = []
        for sequence_id, decision, outcome in rounds:
            plan = self._plans.get(sequence_id)
            if plan is not None:
                key = CellKey(plan.context, str(decision.arm), plan.drafter_version)
                added.append((key, round_counts(outcome)))
                plan.learn(decision, outcome, self._config.reward)
        with self._lock:
            for key, counts in added:
                self._deltas[key] = self._deltas.get(key, _NO_COUNTS) + counts
            self._num_rounds += len(added)
            notify = self._notify if self._num_rounds >= self._notify_after else None
        if notify is not None:
            notify()

    def close(self, sequence_id: str) -> None:
        """Forget a sequence; unknown ones are no error."""
        self._plans.pop(sequence_id, None)

    def set_snapshot(self, snapshot: Snapshot, weight: float = 1.0) -> None:
        """Seed sequences opened from now on with this snapshot.

        Args:
            snapshot: The pooled counts.
            weight: Share of its pulls that still counts for its age, in [0, 1].
        """
        with self._lock:
            if snapshot.version != self._snapshot.version:
                self._contexts.refresh(key.context for key in snapshot.cells)
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
            deltas, self._deltas, self._num_rounds = self._deltas, {}, 0
        return deltas

    def notify_after(self, num_rounds: int, callback: Callable[[], None]) -> None:
        """Call ``callback``, on the engine's thread, while so many rounds wait to be taken."""
        with self._lock:
            self._notify_after, self._notify = num_rounds, callback

    def _kept(self, item: TrimItem) -> int:
        """Return how many nodes of one draft its learner wants verified."""
        plan = self._plans.get(item.sequence_id)
        if plan is None:
            return item.draft_length
        return kept(plan.learner, item.decision.arm, item.draft_length, item.draft_score)

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
        if name not in self._learners:
            self._learners[name] = load_learner(name, {})
        return self._learners[name]
