"""Pools counts: sums them up the contexts, faded with age, no tenant with more than its share.

Counts of closed epochs are summed once and only fade from then on, so a new snapshot costs about
what the running epoch has. Pure: time is passed in; where counts are kept is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from policy_service.api import Arm, ArmCounts, CellKey
from policy_service.cell_index import CellIndex, Ints
from policy_service.config import PolicyConfig
from policy_service.contexts import is_of_whole_tenant, is_specific, tenant_of
from policy_service.merge import Epochs, age_weight
from policy_service.shares import LEAST_PULLS, capped_weights
from policy_service.snapshot_cells import PackedCells

LEAST_CONTEXT_PULLS = 1.0
"""A specific context that faded to less than this gives its place to another."""

MANY_CELLS = 10_000
"""So many numbers of expired cells are kept before all are numbered anew."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Column:
    """One epoch: which cells it has, and their pulls and rewards, ``[cells, 2]``."""

    source: Mapping[CellKey, ArmCounts]
    ids: Ints
    values: Floats


class Pooling:
    """Pools the counts of one target model; keeps what it has computed of epochs."""

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self._index = CellIndex()
        self._columns: dict[int, _Column] = {}
        self._closed: tuple[float, Floats] | None = None
        self._closed_epochs: frozenset[int] = frozenset()

    def pool(self, epochs: Epochs, now: float) -> PackedCells:
        """Return the decayed (pulls, reward) of every cell, parents included.

        An epoch's age is counted from its end, so the running one weighs 1. Of the most specific
        contexts the ``max_contexts`` with the most decayed pulls are kept, of each tenant at most
        ``max_contexts_per_tenant``; the rest are in their parents' sums. In those no tenant weighs
        more than ``max_tenant_share``; counts that name no tenant are taken as one tenant's.

        Args:
            epochs: The counts; an epoch that has changed must be another object.
            now: Seconds since 1970.
        """
        self._update(epochs, now)
        sums = self._decayed(now)
        return self._pack(self._summed_up(sums))

    def _update(self, epochs: Epochs, now: float) -> None:
        """Read the epochs that have changed."""
        closed = frozenset(epoch for epoch in epochs if epoch + self._config.epoch_s <= now)
        has_closed = closed != self._closed_epochs
        if has_closed:
            self._closed, self._closed_epochs = None, closed
        for epoch in [epoch for epoch in self._columns if epoch not in epochs]:
            del self._columns[epoch]
        for epoch, cells in epochs.items():
            known = self._columns.get(epoch)
            if known is None or known.source is not cells:
                self._columns[epoch] = self._column(cells)
                if epoch in closed:
                    self._closed = None
        if has_closed and self._is_mostly_gone():
            self._index = CellIndex()
            self._columns = {epoch: self._column(cells) for epoch, cells in epochs.items()}

    def _is_mostly_gone(self) -> bool:
        """Whether most cells that have a number have expired, and there are many."""
        is_live = np.zeros(len(self._index), bool)
        for column in self._columns.values():
            is_live[column.ids] = True
        return len(is_live) > MANY_CELLS and int(is_live.sum()) < len(is_live) // 2

    def _column(self, cells: Mapping[CellKey, ArmCounts]) -> _Column:
        """Return an epoch's counts as arrays; an arm's reward is at most ``gamma + 1`` a pull."""
        ids = self._index.ids(cells)
        kind = self._config.reward
        pulls = np.array([counts.pulls for counts in cells.values()], float)
        rewards = np.array([counts.reward(kind) for counts in cells.values()], float)
        most = np.array([_largest_reward(key.arm) for key in cells], float)
        rewards = np.clip(rewards, 0.0, most * pulls)
        return _Column(cells, ids, np.stack((pulls, rewards), axis=1))

    def _decayed(self, now: float) -> Floats:
        """Return every cell's sums over epochs, faded, ``[cells, 2]``."""
        config, num_cells = self._config, len(self._index)
        if self._closed is None:
            sums = np.zeros((num_cells, 2))
            for epoch in self._closed_epochs:
                weight = age_weight(now - (epoch + config.epoch_s), config.half_life_s)
                column = self._columns[epoch]
                sums[column.ids] += weight * column.values
            self._closed = now, sums
        at, closed = self._closed
        total = np.zeros((num_cells, 2))
        total[: len(closed)] = closed * 0.5 ** ((now - at) / config.half_life_s)
        for epoch, column in self._columns.items():
            if epoch not in self._closed_epochs:
                total[column.ids] += column.values
        return total

    def _summed_up(self, cells: Floats) -> Floats:
        """Return the sums of all targets, ``[targets, 2]``, no tenant above its share."""
        links = self._index.links()
        parts = _sums(links.part, cells[links.cell], len(links.target))
        totals = _sums(links.target, parts, len(links.context))
        allowed = np.maximum(LEAST_PULLS, self._config.max_tenant_share * totals[:, 0])
        above = parts[:, 0] > allowed[links.target]
        if above.any():
            parts = parts * self._factors(parts[:, 0], links.target, above)[:, None]
            totals = _sums(links.target, parts, len(links.context))
        return totals

    def _factors(self, pulls: Floats, target_of_part: Ints, above: NDArray[np.bool_]) -> Floats:
        """Return a factor for each part, 1 where no tenant of its target is above its share."""
        factors = np.ones(len(pulls))
        order = np.argsort(target_of_part, kind="stable")
        targets = np.unique(target_of_part[above])
        starts = np.searchsorted(target_of_part, targets, "left", sorter=order)
        stops = np.searchsorted(target_of_part, targets, "right", sorter=order)
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            if stop - start > 1:
                part = order[start:stop]
                share = self._config.max_tenant_share
                factors[part] = capped_weights(pulls[part].tolist(), share)
        return factors

    def _pack(self, sums: Floats) -> PackedCells:
        """Return the targets that count, by context."""
        links = self._index.links()
        is_kept = self._kept_contexts(links.context, sums[:, 0])
        chosen = np.flatnonzero((sums[:, 0] > 0) & is_kept[links.context])
        chosen = chosen[np.argsort(links.context[chosen], kind="stable")]
        numbers, starts = np.unique(links.context[chosen], return_index=True)
        contexts = list(self._index.contexts)
        return PackedCells.pack(
            [contexts[number] for number in numbers.tolist()],
            np.append(starts, len(chosen)).astype(np.int32),
            tuple(self._index.names),
            links.name[chosen],
            sums[chosen].astype(np.float32),
        )

    def _kept_contexts(self, context_of_target: Ints, pulls: Floats) -> NDArray[np.bool_]:
        """Return whether each context is kept: all wide ones, and those with the most pulls.

        Equals go by name.
        """
        contexts = list(self._index.contexts)
        counts = np.bincount(context_of_target, pulls, len(contexts)).tolist()
        is_kept = np.array([not is_specific(context) for context in contexts], bool)
        ranked = sorted(
            (-count, context)
            for context, count in zip(contexts, counts, strict=True)
            if is_specific(context) and count >= LEAST_CONTEXT_PULLS
        )
        num_by_tenant: Counter[str] = Counter()
        num_kept = 0
        for _, context in ranked:
            is_wide, tenant = is_of_whole_tenant(context), tenant_of(context)
            has_place = is_wide or num_by_tenant[tenant] < self._config.max_contexts_per_tenant
            if has_place and num_kept < self._config.max_contexts:
                is_kept[self._index.contexts[context]] = True
                num_by_tenant[tenant] += not is_wide
                num_kept += 1
        return is_kept


@lru_cache(maxsize=2**16)
def _largest_reward(name: str) -> float:
    """Return the most that a pull of an arm can earn; no bound for what is no arm."""
    try:
        return Arm.parse(name).gamma + 1.0
    except ValueError:
        return 1e100


def _sums(groups: Ints, values: Floats, num_groups: int) -> Floats:
    """Return the sums of rows by group, ``[num_groups, 2]``."""
    return np.stack([np.bincount(groups, values[:, i], num_groups) for i in range(2)], axis=1)
