"""A replica's account of counts: gathered, sent in numbered batches, kept until they are safe.

What has never been sent is coalesced by epoch and cell. What has been sent is frozen in batches
numbered 1, 2, 3, ... within an incarnation, sent again until it is acknowledged, and kept for a
while after that: a store that failed over may have lost its last second, says so by naming a lower
sequence, and gets those batches again. If it lost more than is kept, the numbering starts anew in a
new incarnation, since the store would wait for ever for the batches that are gone.

Pure: time is passed in, nothing is sent from here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from policy_service.api import ANY_GENERATION, ArmCounts, CellKey, OutcomeBatch
from policy_service.config import PolicyConfig
from policy_service.contexts import parent_of

MAX_BATCH_CELLS = 500
"""Most cells in one batch: bounds how long the store is busy with one."""
MAX_BATCHES = 16
"""Most batches handed out at a time."""
PROBE_PERIOD_S = 5.0
"""How often the newest kept batch is sent again when there is nothing else to send."""

_LEAF_SHARE = 0.75


class Ledger:
    """Counts of one replica on their way to the pool.

    Guarantee: if every batch handed out is applied at most once and in order, and whatever the
    store answers is passed to ``reconcile``, the pool's sums become those of all deltas added, less
    what ``num_dropped_pulls``, ``num_lost_batches`` and, after a reset, ``num_reset_pulls`` say.
    """

    def __init__(
        self, config: PolicyConfig, replica: str, incarnation: str, target_model: str
    ) -> None:
        self._config = config
        self._template = OutcomeBatch(replica, incarnation, 0, 0, target_model, {})
        self._incarnation = incarnation
        self._num_renewals = 0
        self._unsent: dict[tuple[int, CellKey], ArmCounts] = {}
        self._unacknowledged: deque[OutcomeBatch] = deque()
        self._kept: deque[tuple[float, OutcomeBatch]] = deque()
        self._next_sequence = 1
        self._probed_at = float("-inf")
        self.num_dropped_pulls = 0
        self.num_reset_pulls = 0
        self.num_lost_batches = 0

    @property
    def num_unsent_cells(self) -> int:
        """Cells never sent."""
        return len(self._unsent)

    @property
    def is_settled(self) -> bool:
        """Whether everything added has been acknowledged."""
        return not self._unsent and not self._unacknowledged

    def add(self, deltas: Mapping[CellKey, ArmCounts], now: float) -> None:
        """Add counts of rounds played just now.

        When the buffer is full, a cell that is not in it yet is counted for its parent context or
        the root instead; if there is no room for that either, its pulls are dropped and counted.
        """
        epoch = int(now // self._config.epoch_s) * self._config.epoch_s
        for key, counts in deltas.items():
            entry = self._room_for(epoch, key)
            if entry is None:
                self.num_dropped_pulls += counts.pulls
            else:
                self._unsent[entry] = self._unsent.get(entry, ArmCounts()) + counts

    def begin_generation(self, generation: int) -> None:
        """Note that the counters were reset: what was gathered before and not sent is forgotten.

        What was sent goes on until it is acknowledged; the store knows that it is of before. A
        generation that is not later than the one known is no news.
        """
        known = self._template.generation
        if generation <= known:
            return
        self._template = replace(self._template, generation=generation)
        if known != ANY_GENERATION:
            self.num_reset_pulls += sum(counts.pulls for counts in self._unsent.values())
            self._unsent.clear()

    def outgoing(self, now: float) -> list[OutcomeBatch]:
        """Return what to send now, oldest first.

        That is what is not acknowledged; else all that was never sent, frozen into new batches;
        else, now and then, the newest kept batch, so that a store that has lost it can say so.
        """
        self._forget_safe(now)
        if not self._unacknowledged:
            self._freeze()
        if self._unacknowledged:
            return list(islice(self._unacknowledged, MAX_BATCHES))
        if self._kept and now - self._probed_at >= PROBE_PERIOD_S:
            self._probed_at = now
            return [self._kept[-1][1]]
        return []

    def acknowledge(self, applied_sequence: int, now: float) -> None:
        """Note that the store has everything up to ``applied_sequence``; never a step back."""
        while self._unacknowledged and self._unacknowledged[0].sequence <= applied_sequence:
            self._kept.append((now, self._unacknowledged.popleft()))

    def reconcile(self, applied_sequence: int, now: float) -> None:
        """Take the store's word for what it has of this incarnation, be it less or more.

        Less than was acknowledged: the store has lost its tail, which is sent again. More than was
        ever sent: another process had the same name, so ours was taken for its duplicates.
        """
        if applied_sequence >= self._next_sequence:
            self._renew()
            return
        self.acknowledge(applied_sequence, now)
        while self._kept and self._kept[-1][1].sequence > applied_sequence:
            self._unacknowledged.appendleft(self._kept.pop()[1])
        first = self._unacknowledged[0].sequence if self._unacknowledged else self._next_sequence
        if first > applied_sequence + 1:
            self.num_lost_batches += first - applied_sequence - 1
            self._renew()

    def _room_for(self, epoch: int, key: CellKey) -> tuple[int, CellKey] | None:
        """Return where to count a cell; a part of the buffer is kept free for wider contexts."""
        limit = self._config.max_unsent_cells * _LEAF_SHARE
        wider: CellKey | None = key
        while wider is not None:
            entry = (epoch, wider)
            if entry in self._unsent or len(self._unsent) < limit:
                return entry
            limit = self._config.max_unsent_cells
            context = parent_of(wider.context)
            wider = replace(key, context=context) if context is not None else None
        return None

    def _freeze(self) -> None:
        """Turn all that was never sent into numbered batches, one or more an epoch."""
        by_epoch: dict[int, list[tuple[CellKey, ArmCounts]]] = {}
        for (epoch, key), counts in self._unsent.items():
            by_epoch.setdefault(epoch, []).append((key, counts))
        self._unsent = {}
        for epoch, cells in sorted(by_epoch.items()):
            for start in range(0, len(cells), MAX_BATCH_CELLS):
                deltas = dict(cells[start : start + MAX_BATCH_CELLS])
                self._append(replace(self._template, epoch=epoch, deltas=deltas))

    def _append(self, batch: OutcomeBatch) -> None:
        """Number a batch and queue it."""
        self._unacknowledged.append(
            replace(batch, incarnation=self._incarnation, sequence=self._next_sequence)
        )
        self._next_sequence += 1

    def _forget_safe(self, now: float) -> None:
        """Forget batches acknowledged so long ago that no failover can lose them."""
        while self._kept and now - self._kept[0][0] >= self._config.ack_retention_s:
            self._kept.popleft()

    def _renew(self) -> None:
        """Start a new incarnation and number what is not acknowledged anew."""
        self._num_renewals += 1
        self._incarnation = f"{self._template.incarnation}.{self._num_renewals}"
        batches, self._unacknowledged = self._unacknowledged, deque()
        self._kept.clear()
        self._next_sequence = 1
        for batch in batches:
            self._append(batch)
